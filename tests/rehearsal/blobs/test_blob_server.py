"""The blob endpoint: nodes and the operator reach what Azure would let them reach, and no more."""

from __future__ import annotations

import socket
import ssl
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from rehearsal.arm.core.subscription import OPERATOR
from rehearsal.azurite import Azurite, installed
from rehearsal.blobs.blob_server import PUBLIC_IP, BlobServer
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from rehearsal.imds.tokens import Identity
from tests.rehearsal import bodies
from tests.rehearsal.arm.storage.test_accounts import ACCOUNT, CONTAINERS, account, settled
from tests.rehearsal.bodies import SCALE_SET, SUBNET_ID, VNET, build
from tests.rehearsal.doubles import AUTHORIZED, BASE, Endpoint, RecordingMachines, endpoint

READER, CONTRIBUTOR = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1", "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
HOST = "labstore1.blob.core.windows.net"
PATH = "/data/a%20b/%C3%A9.bin"
NET = f"{BASE}/{VNET}"
ADMITTED: dict[str, Any] = {
    "allowSharedKeyAccess": False,
    "networkAcls": {
        "defaultAction": "Deny",
        "virtualNetworkRules": [{"id": SUBNET_ID}],
        "ipRules": [{"value": "127.0.0.1"}],
    },
}


class Here(AbstractResolver):
    """Resolves every name to one address of this machine."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=self.address, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@dataclass
class Storage:
    """An account, the node 0 of a cluster and the operator."""

    azure: Endpoint
    machines: RecordingMachines
    store: Azurite
    server: BlobServer
    faults: ArmFaults
    operator_port: int
    identity: Identity

    def token(self, audience: str = "https://storage.azure.com/") -> str:
        return self.azure.shared.tokens.issue(self.identity, audience).text

    def send(
        self,
        method: str,
        path: str = PATH,
        body: bytes | None = None,
        *,
        operator: bool = False,
        at: str = PUBLIC_IP,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, str, bytes]:
        """Status, error code and body of a request of the node, or of the operator."""
        sent = {"x-ms-version": "2021-12-02", **(headers or {})}
        if headers is None:
            sent["Authorization"] = AUTHORIZED["Authorization"] if operator else f"Bearer {self.token()}"
        if method == "PUT" and "comp" not in path:
            sent["x-ms-blob-type"] = "BlockBlob"
        port = self.operator_port if operator else self.machines.ports[NET, at]

        async def go() -> tuple[int, str, bytes]:
            connector = aiohttp.TCPConnector(
                resolver=Here(at if at.startswith("127.") else "127.0.0.1"),
                local_addr=("127.0.0.1" if operator else "127.0.0.4", 0),
                ssl=ssl.create_default_context(cafile=str(self.store.certificate)),
            )
            url = f"https://127.0.0.1:{port}/labstore1{path}" if operator else f"https://{HOST}:{port}{path}"
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.request(method, URL(url, encoded=True), data=body, headers=sent) as answer,
            ):
                return answer.status, answer.headers.get("x-ms-error-code", ""), await answer.read()

        result: tuple[int, str, bytes] = self.azure.run(go())
        return result

    def allow(self, role: str, principal: str, container: str = "data") -> str:
        """Assign a role on a container; return the assignment's path."""
        scope = f"{BASE}/{CONTAINERS}/{container}"
        path = f"{scope}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}"
        definition = f"/subscriptions/x/providers/Microsoft.Authorization/roleDefinitions/{role}"
        properties = {"roleDefinitionId": definition, "principalId": principal}
        assert self.azure.ask("PUT", path, {"properties": properties})[0] == 201
        return path

    def set(self, **properties: Any) -> None:
        assert settled(self.azure, ACCOUNT, account(**properties))[0] == 200


@pytest.fixture
def storage(recorded: RecordingMachines, tmp_path: Path) -> Iterator[Storage]:
    """An account that admits the nodes' subnet, and a node with an identity that may write to ``data``."""
    assert installed(), "Azurite is not installed: make azurite"
    store, faults = Azurite(tmp_path / "storage"), ArmFaults()
    with endpoint(recorded, faults=faults, store=store) as azure:
        build(azure, 1)
        services = {"serviceEndpoints": [{"service": "Microsoft.Storage"}]}
        assert azure.settle("PUT", VNET, bodies.vnet(**services))["status"] == "Succeeded"
        held = azure.subscription.scale_sets[f"{BASE}/{SCALE_SET}".lower()].instances[0]
        held.machine = replace(held.machine, private_ip="127.0.0.4")
        assert settled(azure, ACCOUNT, account(**ADMITTED))[0] == 200
        for container in ("data", "results"):
            assert azure.ask("PUT", f"{CONTAINERS}/{container}", {})[0] == 201
        path = f"{BASE}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
        made = azure.ask("PUT", path, {"location": "westeurope"})[1]["properties"]
        server = azure.services.blobs
        assert isinstance(server, BlobServer)
        port = azure.run(server.listen())
        identity = Identity(path, made["principalId"], made["clientId"])
        it = Storage(azure, recorded, store, server, faults, port, identity)
        it.allow(CONTRIBUTOR, identity.principal_id)
        yield it


def test_a_node_reads_what_it_wrote_by_its_identity(storage: Storage) -> None:
    assert storage.machines.names[NET] == {HOST: PUBLIC_IP}
    assert storage.send("PUT", body=bytes(range(256)) * 1024)[0] == 201
    assert storage.send("GET") == (200, "", bytes(range(256)) * 1024)
    sent = {
        "Authorization": f"Bearer {storage.token()}",
        "Range": "bytes=256-511",
        "x-ms-version": "2021-12-02",
    }
    assert storage.send("GET", headers=sent) == (206, "", bytes(range(256)))
    listed = storage.send("GET", "/data?restype=container&comp=list&prefix=a%20b/")[2].decode()
    assert "<Name>a b/é.bin</Name>" in listed
    assert storage.send("DELETE")[0] == 202
    assert storage.send("GET")[:2] == (404, "BlobNotFound")


def test_a_block_upload_is_one_blob(storage: Storage) -> None:
    assert storage.send("PUT", f"{PATH}?comp=block&blockid=MDA=", b"one")[0] == 201
    blocks = b"<BlockList><Latest>MDA=</Latest></BlockList>"
    assert storage.send("PUT", f"{PATH}?comp=blocklist", blocks)[0] == 201
    assert storage.send("GET")[2] == b"one"


def test_a_role_on_one_container_is_none_on_another(storage: Storage) -> None:
    assert storage.send("PUT", "/results/x", b"")[:2] == (403, "AuthorizationPermissionMismatch")
    storage.allow(READER, storage.identity.principal_id, "results")
    assert storage.send("GET", "/results?restype=container&comp=list")[0] == 200
    assert storage.send("PUT", "/results/x", b"")[:2] == (403, "AuthorizationPermissionMismatch")
    # Containers are the account's.
    assert storage.send("GET", "/?comp=list")[:2] == (403, "AuthorizationPermissionMismatch")
    assert storage.send("GET", "/other/x")[:2] == (403, "AuthorizationPermissionMismatch")


def test_a_token_of_elsewhere_is_not_taken(storage: Storage) -> None:
    for text in ("made.up.token", storage.token("https://management.azure.com/")):
        refused = storage.send("GET", headers={"Authorization": f"Bearer {text}"})
        assert refused[:2] == (401, "InvalidAuthenticationInfo")
    assert storage.send("GET", headers={})[:2] == (409, "PublicAccessNotPermitted")
    key = storage.azure.ask("POST", f"{ACCOUNT}/listKeys")[1]["keys"][0]["value"]
    signed = storage.send("GET", headers={"Authorization": f"SharedKey labstore1:{key}"})
    assert signed[:2] == (403, "KeyBasedAuthenticationNotPermitted")
    signed = storage.send("GET", f"{PATH}?sv=2021-12-02&sr=b&sp=r&sig=x", headers={})
    assert signed[:2] == (403, "KeyBasedAuthenticationNotPermitted")


def test_the_firewall_comes_first(storage: Storage) -> None:
    rules: dict[str, Any] = ADMITTED["networkAcls"]
    storage.set(networkAcls={**rules, "virtualNetworkRules": []})
    assert storage.send("GET")[:2] == (403, "AuthorizationFailure")
    storage.set(networkAcls={**rules, "defaultAction": "Allow", "virtualNetworkRules": []})
    assert storage.send("GET")[:2] == (404, "BlobNotFound")
    storage.set(publicNetworkAccess="Disabled")
    assert storage.send("GET")[:2] == (403, "AuthorizationFailure")


def test_owning_the_subscription_gives_the_operator_no_data(storage: Storage) -> None:
    assert storage.send("GET", "/?comp=list", operator=True)[0] == 200
    assert storage.send("GET", operator=True)[:2] == (403, "AuthorizationPermissionMismatch")
    storage.allow(CONTRIBUTOR, OPERATOR)
    assert storage.send("PUT", body=b"mine", operator=True)[0] == 201
    assert storage.send("GET")[2] == b"mine"
    rules: dict[str, Any] = ADMITTED["networkAcls"]
    storage.set(networkAcls={**rules, "ipRules": [{"value": "203.0.113.7"}]})
    assert storage.send("GET", operator=True)[:2] == (403, "AuthorizationFailure")


def test_a_private_endpoint_leads_past_the_firewall(storage: Storage) -> None:
    storage.set(publicNetworkAccess="Disabled")
    link = {"name": "blob", "properties": {"privateLinkServiceId": f"{BASE}/{ACCOUNT}", "groupIds": ["blob"]}}
    body = {
        "location": "westeurope",
        "properties": {"subnet": {"id": SUBNET_ID}, "privateLinkServiceConnections": [link]},
    }
    network = "providers/Microsoft.Network"
    assert storage.azure.settle("PUT", f"{network}/privateEndpoints/blob", body)["status"] == "Succeeded"
    (nic,) = storage.azure.subscription.of_type("Microsoft.Network/networkInterfaces")
    address = nic.address or ""
    assert (NET, address) in storage.machines.ports
    # Without a zone the name is still that of the public endpoint.
    assert storage.machines.names[NET] == {HOST: PUBLIC_IP}
    zone = f"{network}/privateDnsZones/privatelink.blob.core.windows.net"
    everywhere = {"location": "global"}
    linked = {**everywhere, "properties": {"virtualNetwork": {"id": NET}, "registrationEnabled": False}}
    group = {"name": "blob", "properties": {"privateDnsZoneId": f"{BASE}/{zone}"}}
    for path, content in (
        (zone, everywhere),
        (f"{zone}/virtualNetworkLinks/net", linked),
        (
            f"{network}/privateEndpoints/blob/privateDnsZoneGroups/default",
            {"properties": {"privateDnsZoneConfigs": [group]}},
        ),
    ):
        assert storage.azure.settle("PUT", path, content)["status"] == "Succeeded", path
    assert storage.machines.names[NET] == {HOST: address}
    nic.address = "127.0.1.9"
    storage.azure.run(storage.server.publish())
    assert (NET, address) not in storage.machines.ports
    assert storage.send("GET", at="127.0.1.9")[:2] == (404, "BlobNotFound")
    assert storage.send("GET")[:2] == (403, "AuthorizationFailure")
    assert storage.azure.settle("DELETE", f"{network}/privateEndpoints/blob")["status"] == "Succeeded"
    assert set(storage.machines.ports) == {(NET, PUBLIC_IP)}


def test_faults_hit_requests_for_blobs(storage: Storage) -> None:
    storage.send("PUT", body=bytes(1 << 20))
    storage.faults.set(fault_spec("storage-busy", count=1, seconds=2.0))
    assert storage.send("GET")[:2] == (503, "ServerBusy")
    assert storage.send("GET")[0] == 200
    storage.faults.set(fault_spec("storage-cut"))
    with pytest.raises(aiohttp.ClientPayloadError):
        storage.send("GET")
    assert storage.send("GET")[0] == 200
    storage.faults.set(fault_spec("storage-denied", count=1))
    assert storage.send("GET")[:2] == (403, "AuthorizationPermissionMismatch")
    storage.faults.set(fault_spec("storage-slow", rate=4.0))
    started = storage.azure.loop.time()
    assert len(storage.send("GET")[2]) == 1 << 20
    assert storage.azure.loop.time() - started > 0.25


def test_bytes_are_counted_by_account(storage: Storage) -> None:
    storage.send("PUT", body=bytes(1000))
    before = replace(storage.server.traffic["labstore1"])
    for _ in range(3):
        storage.send("GET")
    after = storage.server.traffic["labstore1"]
    assert before.bytes_in == 1000
    assert (after.requests - before.requests, after.bytes_out - before.bytes_out) == (3, 3000)


def test_it_ends_with_the_account_and_with_the_network(storage: Storage) -> None:
    assert storage.azure.settle("DELETE", ACCOUNT)["status"] == "Succeeded"
    assert storage.machines.names[NET] == {}
    assert storage.machines.ports == {}
