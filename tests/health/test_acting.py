"""What an operator does about a sick node: drain it, report its host, replace it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from launch.nodeset import fold
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.health, pytest.mark.timeout(900)]

STACK = "rehearsal"
SET = f"ranklift-{STACK}/providers/Microsoft.Compute/virtualMachineScaleSets/ranklift-{STACK}"


def ids(cluster: Workplace) -> list[int]:
    return [row["id"] for row in cluster.fab("status", "--json", status=None).json()]


def launch(cluster: Workplace, nodes: str, *, status: int | None = 0) -> str:
    ran = cluster.fab("launch.torch", "hostname.sh", "--per-node", "--nodes", nodes, status=status)
    return ran.out + ran.err


def host(cluster: Workplace, node: int) -> str:
    """The node's host, by what it says itself."""
    line = "tr -d '\\0' < /var/lib/hyperv/.kvp_pool_3"
    found = re.search(
        r"PhysicalHostName(\w+?)VirtualMachineName", cluster.fab("exec", line, "-n", str(node)).out
    )
    assert found is not None
    return found[1]


@pytest.fixture(scope="module", autouse=True)
def script(cluster: Workplace) -> None:
    (cluster.own / "hostname.sh").write_text("hostname\n")


def collect_all(cluster: Workplace) -> None:
    for job in cluster.fab("jobs", "--json").json():
        cluster.fab("collect", job["job"], "--work")


@contextmanager
def drained(cluster: Workplace, node: int) -> Iterator[str]:
    """The note on the node while the block runs."""
    shown = cluster.fab("drain", str(node)).out
    try:
        yield shown.partition(": ")[2].strip().partition(";")[0]
    finally:
        cluster.fab("undrain", str(node))


@pytest.mark.for_every_change
def test_a_drained_node_gets_no_job_until_it_is_undrained(cluster: Workplace) -> None:
    first, sick, last = ids(cluster)
    with drained(cluster, sick) as note:
        assert note.startswith("drained 20")
        refused = launch(cluster, f"{first},{sick}", status=None)
        assert f"no rank was started: node{sick:06x} is {note}: choose other nodes" in refused
        taken = launch(cluster, "any:2")
        assert f"any:2: node[{first:06x},{last:06x}]" in taken
        rows = {row["id"]: row for row in cluster.fab("status", "--json").json()}
        assert rows[sick]["state"] == "running, drained"
        assert {number: row["drain"] for number, row in rows.items()} == {first: "", sick: note, last: ""}
    assert f"node{sick:06x}" in launch(cluster, str(sick))


def test_a_drain_outlives_a_reboot(cluster: Workplace) -> None:
    sick = ids(cluster)[1]
    with drained(cluster, sick) as note:
        group = f"/subscriptions/{cluster.record.subscription_id}/resourceGroups"
        _, headers = cluster.ask("POST", f"{group}/{SET}/virtualMachines/{sick}/restart", {})
        while cluster.ask("GET", headers["Azure-AsyncOperation"])[0]["status"] == "InProgress":
            pass
        cluster.fab("wait")
        assert note in launch(cluster, str(sick), status=None)


def test_a_job_that_runs_goes_on_when_its_node_is_drained(cluster: Workplace) -> None:
    sick = ids(cluster)[1]
    (cluster.own / "long.sh").write_text("until [ -e /tmp/go ]; do sleep 0.2; done\n")
    launched = cluster.fab(
        "launch.torch", "long.sh", "--per-node", "-n", str(sick), "--name", "long", "--detach"
    )
    job = launched.out.strip()
    cluster.fab("exec", f"until pgrep -f long.sh >/dev/null; do sleep 0.2; done; echo {job}", "-n", str(sick))
    with drained(cluster, sick):
        assert cluster.fab("job", job, "--json").json()["state"]["state"] == "RUNNING"
        assert job in cluster.fab("drain", str(sick)).out
        cluster.fab("exec", "touch /tmp/go", "-n", str(sick))
        assert cluster.fab("wait", job).status == 0


def test_a_host_is_reported_and_does_not_come_again(healed: Workplace) -> None:
    cluster = healed
    sick = ids(cluster)[1]
    was = host(cluster, sick)
    collect_all(cluster)
    cluster.fab("rehearsal.fault", "hca", "--nodes", str(sick), "--state", "down")
    cluster.fab("rehearsal.fault", "impact")
    refused = cluster.fab("replace", str(sick), "--report", status=1)
    assert "MissingSubscriptionRegistration" in refused.err
    assert f"node{sick:06x} is not replaced: its host is not reported" in refused.err
    assert sick in ids(cluster)
    cluster.fab("rehearsal.fault", "clear")
    cluster.fab("rehearsal.fault", "hca", "--nodes", str(sick), "--state", "down")
    done = cluster.fab("replace", str(sick), "--report", "--json").json()
    assert done["report"]["category"] == "Resource.Hpc.Unhealthy.IBPortDown"
    assert done["report"]["host"] == was
    assert done["host"].endswith(f": on another host than {was}")
    assert host(cluster, ids(cluster)[-1]) != was


def test_without_a_report_the_host_may_come_again(cluster: Workplace) -> None:
    sick = ids(cluster)[1]
    was = host(cluster, sick)
    cluster.fab("replace", str(sick), "--yes")
    assert host(cluster, ids(cluster)[-1]) == was


@pytest.mark.for_every_change
def test_the_sick_nodes_are_replaced_and_no_others(healed: Workplace) -> None:
    cluster = healed
    first, *sick = ids(cluster)
    names = [f"node{number:06x}" for number in sick]
    cluster.fab("rehearsal.fault", "hca", "--nodes", ",".join(map(str, sick)), "--state", "down")
    refused = cluster.fab("replace", "--sick", status=1)
    assert f"{fold(names)}: mlx5_ib0:1: 1: DOWN, expected 4: ACTIVE; " in refused.err
    assert f"{fold(names)} are not replaced: " in refused.err
    assert "; --yes replaces them" in refused.err
    done = cluster.fab("replace", "--sick", "--yes", "--json").json()
    assert [one["node"] for one in done] == names, json.dumps(done)
    assert ids(cluster)[0] == first
    assert not set(ids(cluster)) & set(sick)
    assert "no check was made, and a look finds no error" in cluster.fab("replace", "--sick").err
