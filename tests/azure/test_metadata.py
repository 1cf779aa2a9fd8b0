"""What programs on a cluster's nodes hear of Azure: who they are, what will happen, what they may do."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.azure.as_agent import as_agent
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK, OTHER = "rehearsal", "rehearsal-other"
SERVICE = "http://169.254.169.254"
INSTANCE = "/metadata/instance?api-version=2021-02-01"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
TOKEN = "/metadata/identity/oauth2/token?api-version=2018-02-01"
ARM = "&resource=https://management.azure.com/"

PROGRAM = """\
import json, sys, urllib.error, urllib.request
method, url, headers, body = {asked!r}
request = urllib.request.Request(url, body, headers, method=method)
try:
    with urllib.request.urlopen(request, timeout=20) as answer:
        status, text = answer.status, answer.read().decode()
except urllib.error.HTTPError as error:
    status, text = error.code, error.read().decode()
print(json.dumps([status, text]))
"""


@dataclass(frozen=True, slots=True)
class Inside:
    """The nodes of one stack, on which programs ask."""

    workplace: Workplace
    stack: str

    def ask(
        self, node: int, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """Status and answer of a request that a program on a node makes; JSON is read."""
        data = None if body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): text for name, text in headers.items()} or {"Metadata": "true"}
        program = PROGRAM.format(asked=(method, SERVICE + path, sent, data))
        coded = base64.b64encode(program.encode()).decode()
        line = f"python3 -c \"import base64; exec(base64.b64decode('{coded}'))\""
        words = ("--nodes", str(node), "--stack", self.stack, "--json")
        (result,) = self.workplace.fab("exec", as_agent(line), *words).json().values()
        status, text = json.loads(result["stdout"])
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def token(self, node: int, more: str = "") -> tuple[int, Any]:
        return self.ask(node, TOKEN + ARM + more)


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Inside:
    """Three nodes with an identity: a cluster that ends by itself needs one."""
    workplace.configure(STACK, nodeCount=3, ttlHours=24)
    workplace.fab("up", "--stack", STACK)
    return Inside(workplace, STACK)


@pytest.fixture(scope="module")
def other(cluster: Inside) -> Inside:
    """A cluster of one node beside it, which needs no identity and has none."""
    cluster.workplace.configure(OTHER, nodeCount=1)
    cluster.workplace.fab("up", "--stack", OTHER)
    return Inside(cluster.workplace, OTHER)


def test_each_node_hears_of_itself(cluster: Inside, other: Inside) -> None:
    result = [cluster.ask(node, INSTANCE)[1] for node in range(3)]
    compute = [one["compute"] for one in result]
    assert [one["osProfile"]["computerName"] for one in compute] == [f"node00000{n}" for n in range(3)]
    assert [one["name"] for one in compute] == [f"ranklift-{STACK}_{n}" for n in range(3)]
    assert len({one["vmId"] for one in compute}) == 3
    assert {one["resourceGroupName"] for one in compute} == {f"ranklift-{STACK}"}
    assert {one["azEnvironment"] for one in compute} == {"RankliftRehearsal"}
    tags = {one["name"]: one["value"] for one in compute[0]["tagsList"]}
    assert tags["ranklift-ttl-hours"] == "24"
    addresses = [one["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"] for one in result]
    own = cluster.workplace.fab("exec", "hostname -I", "--stack", STACK, "--json").json()
    assert addresses == [own[f"node00000{n}"]["stdout"].strip() for n in range(3)]
    # The other cluster has the same addresses in a network of its own.
    status, its = other.ask(0, INSTANCE)
    assert (status, its["compute"]["vmScaleSetName"]) == (200, f"ranklift-{OTHER}")


def test_a_process_of_the_nodes_user_is_not_answered_and_gets_no_token_that_could_delete_a_node(
    cluster: Inside,
) -> None:
    ask = "curl -sS --max-time 10 -H Metadata:true --noproxy '*'"
    for line in (
        f"{ask} '{SERVICE}{TOKEN}{ARM}'",
        f"{ask} '{SERVICE}{INSTANCE}'",
        f"{ask} -f --unix-socket /run/ranklift/metadata 'http://node{TOKEN}{ARM}'",
    ):
        ran = cluster.workplace.fab("exec", line, "--nodes", "0", "--stack", STACK, "--json", status=None)
        (result,) = ran.json().values()
        assert (result["exit_status"] != 0, "access_token" in result["stdout"]) == (True, False), line


def test_curl_is_answered_as_on_azure(cluster: Inside) -> None:
    line = (
        f"curl -s -H Metadata:true --noproxy '*' '{SERVICE}/metadata/instance/compute/vmScaleSetName"
        "?api-version=2021-02-01&format=text'; echo; "
        f"curl -s -o /dev/null -w '%{{http_code}}\\n' '{SERVICE}{INSTANCE}'"
    )
    ran = cluster.workplace.fab(
        "exec", as_agent(line), "--nodes", "0", "--stack", STACK, "--json", status=None
    )
    (result,) = ran.json().values()
    assert result["stdout"].split() == [f"ranklift-{STACK}", "400"]


def test_only_a_program_that_means_it_is_answered(cluster: Inside) -> None:
    assert cluster.ask(0, INSTANCE, Accept="*/*")[0] == 400
    status, answer = cluster.ask(0, INSTANCE, Metadata="true", X_Forwarded_For="10.0.0.5")
    assert (status, "X-Forwarded-For" in answer["error"]) == (400, True)
    assert cluster.ask(0, "/metadata/instance")[0] == 400
    assert cluster.ask(0, "/latest/meta-data/")[0] == 404


def test_a_node_s_token_is_its_own_cluster_s(cluster: Inside, other: Inside) -> None:
    status, held = cluster.token(0)
    assert (status, held["token_type"]) == (200, "Bearer")
    assert cluster.token(1, f"&client_id={held['client_id']}")[1]["access_token"] == held["access_token"]
    refused = {"error": "invalid_request", "error_description": "Identity not found"}
    assert other.token(0) == (400, refused)
    assert other.token(0, f"&client_id={held['client_id']}") == (400, refused)


def test_a_token_opens_what_its_role_says(cluster: Inside) -> None:
    workplace = cluster.workplace
    bearer = {"Authorization": f"Bearer {cluster.token(0)[1]['access_token']}"}
    group = f"/subscriptions/{workplace.record.subscription_id}/resourceGroups/ranklift-{STACK}"
    path = f"{group}/providers/Microsoft.Compute/virtualMachineScaleSets/ranklift-{STACK}"
    version = "?api-version=2024-11-01"
    status, shown = cluster.ask(0, path + version, **bearer)
    assert (status, shown["name"]) == (200, f"ranklift-{STACK}")
    for method, closed in (
        ("DELETE", group),
        ("GET", f"{group}/providers/Microsoft.Network/virtualNetworks"),
    ):
        status, refused = cluster.ask(0, closed + version, method, **bearer)
        assert (status, refused["error"]["code"]) == (403, "AuthorizationFailed")
    assert cluster.ask(0, path + version)[0] == 401
    assert cluster.ask(0, path + version, Authorization="Bearer made.up.token")[0] == 401
    assert f"ranklift-{STACK}" in workplace.groups()


def test_an_eviction_is_announced_to_all_and_takes_one(cluster: Inside) -> None:
    before = cluster.ask(0, EVENTS)[1]
    assert before["Events"] == []
    cluster.workplace.fab("rehearsal.fault", "evict", "--nodes", "1", "--seconds", "8", "--stack", STACK)
    for node in (0, 1):
        result = cluster.ask(node, EVENTS)[1]
        (event,) = result["Events"]
        assert result["DocumentIncarnation"] > before["DocumentIncarnation"]
        assert (event["EventType"], event["Resources"]) == ("Preempt", [f"ranklift-{STACK}_1"])
        assert (event["ResourceType"], event["EventSource"]) == ("VirtualMachine", "Platform")
    deadline = time.monotonic() + 60
    while len(cluster.workplace.network(STACK)["nodes"]) != 2:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert cluster.ask(0, EVENTS)[1]["Events"] == []
    assert cluster.ask(2, INSTANCE)[0] == 200


def test_a_cluster_that_goes_down_waits_for_its_nodes_and_no_longer(cluster: Inside, other: Inside) -> None:
    began = time.monotonic()
    cluster.workplace.fab("down", "--stack", STACK, "--yes")
    assert time.monotonic() - began < 120  # Azure would wait for five minutes if no node agreed
    assert other.ask(0, INSTANCE)[0] == 200
    other.workplace.fab("down", "--stack", OTHER, "--yes")
