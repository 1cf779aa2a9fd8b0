"""What a VM hears at 169.254.169.254, and that it hears only of itself."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rehearsal.arm.core.subscription import Subscription
from rehearsal.imds.server import Metadata
from rehearsal.imds.tokens import Identity
from rehearsal.vms.api import Machine
from tests.rehearsal import bodies, node_lab
from tests.rehearsal.bodies import SCALE_SET, VNET, build
from tests.rehearsal.doubles import BASE, SUBSCRIPTION_ID, Endpoint

INSTANCE = "/metadata/instance"
EVENTS = "/metadata/scheduledevents"
TOKEN = "/metadata/identity/oauth2/token"
ARM = "https://management.azure.com/"


@dataclass
class Inside:
    """The service of one network, asked from the addresses of its VMs: 127.0.0.4 and on."""

    azure: Endpoint
    port: int

    def ask(
        self,
        number: int,
        path: str,
        *,
        method: str = "GET",
        version: str = "2021-02-01",
        headers: dict[str, str] | None = None,
        body: Any = None,
        **query: str,
    ) -> tuple[int, Any]:
        """Status and body of a request of the VM with this instance id."""

        async def send() -> tuple[int, Any]:
            params = ({"api-version": version} if version else {}) | query
            shown = {"Metadata": "true"} if headers is None else headers
            connector = aiohttp.TCPConnector(local_addr=(f"127.0.0.{number + 4}", 0))
            async with (
                aiohttp.ClientSession(connector=connector, headers=shown) as session,
                session.request(
                    method, f"http://127.0.0.1:{self.port}{path}", params=params, json=body
                ) as answer,
            ):
                text = await answer.text()
                return answer.status, (
                    json.loads(text) if answer.content_type == "application/json" else text
                )

        result: tuple[int, Any] = self.azure.run(send())
        return result


async def anybody(**_: Any) -> bool:
    return True


@pytest.fixture
def inside(azure: Endpoint) -> Iterator[Inside]:
    """Three VMs; loopback addresses stand for those of their network."""
    build(azure)
    held = azure.subscription.scale_sets[f"{BASE}/{SCALE_SET}".lower()]
    for instance in held.instances.values():
        instance.machine = replace(instance.machine, private_ip=f"127.0.0.{instance.id + 4}")
    metadata = Metadata(azure.shared, azure.url)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    azure.run(metadata.open(f"{BASE}/{VNET}", listener, anybody))
    yield Inside(azure, port)
    azure.run(metadata.close_all())


def assign(azure: Endpoint, monkeypatch: pytest.MonkeyPatch, *names: str) -> list[Identity]:
    """Gives the scale set identities."""
    made = [Identity(f"{BASE}/providers/x/userAssignedIdentities/{n}", f"oid-{n}", f"app-{n}") for n in names]
    record = azure.subscription.resources[f"{BASE}/{SCALE_SET}".lower()]
    record.body["identity"] = {"userAssignedIdentities": {one.resource_id: {} for one in made}}
    monkeypatch.setattr("rehearsal.imds.server.identities", lambda _subscription, _of: made)
    return made


def test_a_vm_is_told_of_itself(inside: Inside) -> None:
    record = inside.azure.subscription.resources[f"{BASE}/{SCALE_SET}".lower()]
    record.body["tags"] = {"ranklift-stack": "a", "ranklift-ttl-hours": "4"}
    status, found = inside.ask(1, INSTANCE)
    compute = found["compute"]
    assert status == 200
    assert {
        "azEnvironment": "RankliftRehearsal",
        "location": "westeurope",
        "name": "nodes_1",
        "resourceGroupName": "lab",
        "subscriptionId": SUBSCRIPTION_ID,
        "vmScaleSetName": "nodes",
        "vmSize": "Standard_ND40rs_v2",
        "tags": "ranklift-stack:a;ranklift-ttl-hours:4",
        "zone": "",
        "customData": "",
    }.items() <= compute.items()
    assert compute["osProfile"]["adminUsername"] == "azureuser"
    assert compute["osProfile"]["computerName"] == "node000001"
    assert {"name": "ranklift-ttl-hours", "value": "4"} in compute["tagsList"]
    assert compute["resourceId"] == f"{BASE}/{SCALE_SET}/virtualMachines/1"
    assert found["network"]["interface"][0]["ipv4"] == {
        "ipAddress": [{"privateIpAddress": "127.0.0.5", "publicIpAddress": ""}],
        "subnet": [{"address": "10.0.0.0", "prefix": "20"}],
    }
    others = {inside.ask(number, INSTANCE)[1]["compute"]["vmId"] for number in range(3)}
    assert len(others) == 3


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/compute/vmScaleSetName", "nodes"),
        ("/compute/osProfile/adminUsername", "azureuser"),
        ("/network/interface/0/ipv4/ipAddress/0/privateIpAddress", "127.0.0.4"),
        ("", "compute/\nnetwork/"),
        ("/network/interface", "0/"),
    ],
)
def test_single_values_are_asked_for_as_text(inside: Inside, path: str, text: str) -> None:
    assert inside.ask(0, f"{INSTANCE}{path}", format="text") == (200, text)


def test_a_single_value_has_no_json_form(inside: Inside) -> None:
    assert inside.ask(0, f"{INSTANCE}/compute/name")[0] == 400
    assert inside.ask(0, f"{INSTANCE}/compute/colour", format="text")[0] == 404
    assert inside.ask(0, f"{INSTANCE}/network/interface/1", format="text")[0] == 404


@pytest.mark.parametrize("path", [INSTANCE, EVENTS, TOKEN])
@pytest.mark.parametrize(
    ("headers", "version", "words"),
    [
        ({}, "2021-02-01", "Required metadata header not specified"),
        ({"Metadata": "false"}, "2021-02-01", "Required metadata header not specified"),
        ({"Metadata": "true", "X-Forwarded-For": "10.0.0.5"}, "2021-02-01", "X-Forwarded-For"),
        ({"Metadata": "true"}, "", "api-version was not specified"),
        ({"Metadata": "true"}, "new", "api-version is invalid"),
    ],
)
def test_a_question_has_the_header_and_a_version(
    inside: Inside, path: str, headers: dict[str, str], version: str, words: str
) -> None:
    status, found = inside.ask(0, path, headers=headers, version=version)
    assert status == 400
    assert words in json.dumps(found)


def test_no_header_makes_a_vm_another(inside: Inside) -> None:
    for name in ("X-Real-IP", "Forwarded", "X-Client-IP", "Host", "X-ms-forwarded-for"):
        _, found = inside.ask(2, INSTANCE, headers={"Metadata": "true", name: "127.0.0.4"})
        assert found["compute"]["name"] == "nodes_2"
    assert inside.ask(200, INSTANCE)[0] == 404


def test_only_what_there_is_answers(inside: Inside) -> None:
    assert inside.ask(0, INSTANCE, method="POST", body={})[0] == 405
    assert inside.ask(0, EVENTS, method="DELETE")[0] == 405
    assert inside.ask(0, TOKEN, method="POST", body={})[0] == 405
    assert inside.ask(0, "/metadata/attested/document")[0] == 404
    assert inside.ask(0, "/metadata/instances")[0] == 404
    assert inside.ask(0, "/")[0] == 404


def test_a_token_is_of_an_identity_that_the_vm_has(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = inside.ask(0, TOKEN, resource=ARM)
    assert nobody == (400, {"error": "invalid_request", "error_description": "Identity not found"})
    (one,) = assign(inside.azure, monkeypatch, "one")
    status, found = inside.ask(0, TOKEN, resource=ARM)
    assert status == 200
    assert found["token_type"] == "Bearer"
    assert int(found["expires_on"]) - int(found["not_before"]) == 86400
    known = inside.azure.shared.tokens.bearer(f"Bearer {found['access_token']}")
    assert known is not None
    assert (known.identity, known.audience) == (one, ARM)
    claims = found["access_token"].split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["oid"] == "oid-one"
    assert inside.ask(1, TOKEN, resource=ARM, client_id="app-one")[1]["access_token"] == found["access_token"]
    assert inside.ask(1, TOKEN, resource=ARM, client_id="app-two")[0] == 400
    assert inside.ask(1, TOKEN)[1]["error_description"] == "Required query variable 'resource' is missing"
    assert inside.ask(1, TOKEN, resource="https://example.org")[1]["error"] == "invalid_resource"


def test_of_several_identities_one_is_named(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    _, two = assign(inside.azure, monkeypatch, "one", "two")
    assert "Multiple user assigned" in inside.ask(0, TOKEN, resource=ARM)[1]["error_description"]
    named: list[dict[str, Any]] = [
        {"client_id": two.client_id},
        {"object_id": two.principal_id},
        {"msi_res_id": two.resource_id.upper()},
    ]
    for query in named:
        assert inside.ask(0, TOKEN, resource=ARM, **query)[1]["client_id"] == "app-two"


def test_the_resource_manager_is_behind_it_for_holders_of_a_token(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{BASE}/{SCALE_SET}"
    status, found = inside.ask(0, path, headers={})
    assert (status, found["error"]["code"]) == (401, "AuthenticationFailed")
    status, found = inside.ask(0, path, headers={"Authorization": "Bearer made.up.token"})
    assert (status, found["error"]["code"]) == (401, "InvalidAuthenticationToken")
    assign(inside.azure, monkeypatch, "one")
    token = inside.ask(0, TOKEN, resource=ARM)[1]["access_token"]
    status, found = inside.ask(0, path, version="2024-11-01", headers={"Authorization": f"Bearer {token}"})
    assert status in (200, 403)  # whether it may is the Resource Manager's to say


def terminating(azure: Endpoint) -> None:
    body = bodies.scale_set()
    profile = body["properties"]["virtualMachineProfile"]
    profile["scheduledEventsProfile"] = {
        "terminateNotificationProfile": {"enable": True, "notBeforeTimeout": "PT5M"}
    }
    assert azure.settle("PUT", SCALE_SET, body)["status"] == "Succeeded"


def test_a_deletion_waits_for_every_vm_on_which_somebody_listens(inside: Inside) -> None:
    terminating(inside.azure)
    first = inside.ask(0, EVENTS)[1]
    assert first == {"DocumentIncarnation": 1, "Events": []}
    assert inside.ask(1, EVENTS)[0] == 200  # nobody listens on the third
    assert inside.azure.ask("DELETE", SCALE_SET)[0] == 202
    found = inside.ask(0, EVENTS)[1]
    assert found["DocumentIncarnation"] == 2
    assert [(e["Resources"], e["EventType"], e["EventStatus"]) for e in found["Events"]] == [
        (["nodes_0"], "Terminate", "Scheduled"),
        (["nodes_1"], "Terminate", "Scheduled"),
    ]
    assert found["Events"][0]["NotBefore"].endswith(" GMT")
    assert {one["EventSource"] for one in found["Events"]} == {"User"}
    own, other = (one["EventId"] for one in found["Events"])
    assert inside.ask(0, EVENTS, method="POST", body={"StartRequests": [{"EventId": own}]})[0] == 200
    found = inside.ask(1, EVENTS)[1]
    assert [one["EventStatus"] for one in found["Events"]] == ["Started", "Scheduled"]
    assert found["Events"][0]["NotBefore"] == ""
    assert inside.azure.ask("GET", SCALE_SET)[0] == 200
    assert inside.ask(1, EVENTS, method="POST", body={"StartRequests": [{"EventId": other}]})[0] == 200
    gone = inside.azure.settle("DELETE", SCALE_SET)
    assert gone["status"] == "Succeeded"
    assert inside.azure.ask("GET", SCALE_SET)[0] == 404


@pytest.mark.parametrize("body", [{}, [], {"StartRequests": [{"EventId": "none"}]}, {"StartRequests": ["x"]}])
def test_only_an_event_can_be_approved(inside: Inside, body: Any) -> None:
    assert inside.ask(0, EVENTS, method="POST", body=body)[0] == 400


def test_without_the_profile_or_a_listener_a_deletion_does_not_wait(inside: Inside) -> None:
    inside.ask(0, EVENTS)
    assert inside.azure.settle("POST", f"{SCALE_SET}/delete", {"instanceIds": ["0"]})["status"] == "Succeeded"
    terminating(inside.azure)
    assert inside.azure.settle("DELETE", SCALE_SET)["status"] == "Succeeded"


def test_a_node_reaches_the_service_of_its_network(tmp_path: Path) -> None:
    async def story() -> None:
        echo = node_lab.Echo()
        async with node_lab.lab(tmp_path, 2, metadata=echo) as it:
            for number in (0, 1):
                assert await it.ssh(number, node_lab.ASK_ECHO) == (0, f"{node_lab.private_ip(number)}\n")
        assert echo.server is not None
        assert not echo.server.is_serving()

    asyncio.run(story())


def test_who_asks_is_looked_for_in_his_own_network(azure: Endpoint) -> None:
    build(azure, 1)
    subscription: Subscription = azure.subscription
    from rehearsal.imds.vm_registry import find_vm

    held = subscription.scale_sets[f"{BASE}/{SCALE_SET}".lower()]
    machine: Machine = held.instances[0].machine
    assert find_vm(subscription, f"{BASE}/{VNET}", machine.private_ip) is not None
    assert find_vm(subscription, f"{BASE}/{VNET}2", machine.private_ip) is None
