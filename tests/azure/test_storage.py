"""The nodes' storage: the account that the program makes holds real blobs, by the nodes' own rights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobServiceClient

from rehearsal import azurite
from tests.e2e.workplace import Workplace

pytestmark = [
    pytest.mark.azure,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not azurite.installed(), reason="Azurite is not installed: tools/setup --azure"),
]

STACK = "rehearsal"
TOKEN = (
    "python3 -c 'import urllib.request as u; print(u.urlopen(u.Request("
    '"http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01'
    '&resource=https://storage.azure.com/", headers={"Metadata": "true"})).read().decode())\''
)


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """One node, and blob storage behind a service endpoint."""
    workplace.configure(STACK, nodeCount=1, storage="serviceEndpoint")
    workplace.fab("up")
    return workplace


class FromNode:
    """The credential that a program on the node has: the identity's token, from the node's own metadata."""

    def __init__(self, cluster: Workplace) -> None:
        (result,) = cluster.fab("exec", TOKEN, "--json").json().values()
        self._told = json.loads(result["stdout"])

    def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
        return AccessToken(self._told["access_token"], int(self._told["expires_on"]))


def outputs(cluster: Workplace) -> dict[str, Any]:
    found: dict[str, Any] = cluster.pulumi("stack", "output", "--json", "--stack", STACK).json()
    return found


def service(cluster: Workplace) -> BlobServiceClient:
    """Microsoft's client at the endpoint that the program exports."""
    certificate = cluster.folder.root / "storage" / "certificate.pem"
    return BlobServiceClient(
        outputs(cluster)["blobEndpoint"], credential=FromNode(cluster), connection_verify=str(certificate)
    )


def test_what_is_uploaded_into_the_programs_container_is_read_again(cluster: Workplace) -> None:
    with service(cluster) as client:
        assert {c.name for c in client.list_containers()} == {"data", "results"}
        blob = client.get_blob_client("data", "shards/0.bin")
        blob.upload_blob(bytes(range(256)) * 4096)
        assert blob.get_blob_properties().size == 1 << 20
        assert blob.download_blob(offset=256, length=256).readall() == bytes(range(256))
        with pytest.raises(ResourceNotFoundError):
            client.get_blob_client("other", "x").upload_blob(b"")


def test_right_after_it_was_made_nothing_differs(cluster: Workplace) -> None:
    cluster.pulumi("preview", "--stack", STACK, "--refresh", "--expect-no-changes")


def test_a_right_that_somebody_took_away_is_seen_and_given_again(cluster: Workplace) -> None:
    cluster.fab("status")
    resources = cluster.pulumi("stack", "export", "--stack", STACK).json()["deployment"]["resources"]
    (right,) = (one["id"] for one in resources if one["urn"].endswith("::data-right"))
    cluster.ask("DELETE", right, version="2022-04-01")
    result = "RoleAssignment data-right: Azure no longer has it"
    assert result in cluster.fab("status", status=1).err
    assert f"drift: {result}" in cluster.fab("up").err
    cluster.fab("status")


def test_beside_a_cluster_whose_state_was_lost_nothing_is_made(cluster: Workplace, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(cluster.pulumi("stack", "export", "--show-secrets", "--stack", STACK).out)
    cluster.pulumi("stack", "rm", "--force", "--yes", "--preserve-config", STACK)
    result = cluster.fab("up", status=1).err
    assert f"state: resource group ranklift-{STACK} already exists, with " in result
    assert f"data: resource group ranklift-{STACK}-data already exists, with " in result
    shown = cluster.fab("account", "--json").json()["things"]
    assert {one["in_state"] for one in shown} == {False}
    cluster.pulumi("stack", "init", STACK)
    cluster.pulumi("stack", "import", "--file", str(state), "--stack", STACK)
    shown = cluster.fab("account", "--json").json()["things"]
    assert {one["in_state"] for one in shown} == {True}
    cluster.fab("status")


def test_private_endpoint_and_nfs_server_are_made_and_nothing_differs(cluster: Workplace) -> None:
    cluster.configure(STACK, nodeCount=1, storage="privateEndpoint", nfs="vm", nfsSizeGib=1024)
    cluster.fab("up", "--yes")  # the nodes are made again
    cluster.pulumi("preview", "--stack", STACK, "--refresh", "--expect-no-changes")
    with service(cluster) as client:
        assert client.get_blob_client("data", "shards/0.bin").exists()
    kinds = {one["type"] for one in cluster.azure("/resources")["value"]}
    assert {"Microsoft.Network/privateEndpoints", "Microsoft.Compute/virtualMachines"} <= kinds


def test_with_the_cluster_goes_all_of_its_storage(cluster: Workplace) -> None:
    cluster.fab("down", "--yes")
    assert cluster.groups() == set()
    folder = cluster.folder.root / "storage"
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
