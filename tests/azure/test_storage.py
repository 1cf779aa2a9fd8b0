"""The nodes' storage: the account that the program makes holds real blobs, by the nodes' own rights."""

from __future__ import annotations

import shlex
import uuid
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from infra.arm.clients import blob_service
from rehearsal.arm.core.subscription import OPERATOR
from tests.azure.as_agent import as_agent
from tests.e2e.workplace import Workplace

pytestmark = [
    pytest.mark.azure,
    pytest.mark.timeout(1800),
]

STACK = "rehearsal"
ON_NODE = """
import json, os, ssl, urllib.error, urllib.request as u
metadata = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
asked = u.Request(f"{metadata}&resource=https://storage.azure.com/", headers={"Metadata": "true"})
token = json.loads(u.urlopen(asked).read())["access_token"]
headers = {"Authorization": f"Bearer {token}", "x-ms-version": "2021-12-02", "x-ms-blob-type": "BlockBlob"}
body = os.environ.get("BODY", "").encode() if os.environ["METHOD"] == "PUT" else None
request = u.Request(os.environ["URL"], body, headers, method=os.environ["METHOD"])
try:
    answer = u.urlopen(request, context=ssl.create_default_context())
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.headers.get("x-ms-error-code", ""), answer.read().decode(), end="")
"""
CURL = """
A=http://169.254.169.254/metadata/identity/oauth2/token
T=$(curl -sfH Metadata:true "$A?api-version=2018-02-01&resource=https://storage.azure.com/" | cut -d '"' -f 4)
curl -sfH "Authorization: Bearer $T" -H x-ms-version:2021-12-02 "$URL"
"""


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """One node, and blob storage behind a service endpoint."""
    workplace.configure(STACK, nodeCount=1, storage="serviceEndpoint")
    workplace.fab("up")
    return workplace


def outputs(cluster: Workplace) -> dict[str, Any]:
    found: dict[str, Any] = cluster.pulumi("stack", "output", "--json", "--stack", STACK).json()
    return found


def node(cluster: Workplace, method: str, path: str, body: str = "", *, script: str = "") -> str:
    """What a node prints of a request by its identity; ``script`` for the system's Python's own."""
    variables = {"METHOD": method, "URL": f"{outputs(cluster)['blobEndpoint']}{path}", "BODY": body}
    words = ["env", *(f"{name}={value}" for name, value in variables.items())]
    words += ["sh", "-c", as_agent(script or f"python3 -c {shlex.quote(ON_NODE)}")]
    (result,) = cluster.fab("exec", "--json", "--", *words).json().values()
    return str(result["stdout"])


def allow_operator(cluster: Workplace) -> None:
    """Assign the operator the role without which nobody's own subscription lets him at data."""
    (group,) = (one for one in cluster.groups() if one.endswith("-data"))
    name = outputs(cluster)["storageAccount"]
    base = f"/subscriptions/{cluster.record.subscription_id}"
    scope = f"{base}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{name}"
    right = f"{scope}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}"
    definition = "/providers/Microsoft.Authorization/roleDefinitions/ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    body = {"properties": {"roleDefinitionId": definition, "principalId": OPERATOR}}
    cluster.ask("PUT", right, body, version="2022-04-01")


@pytest.mark.for_every_change
def test_a_node_uses_the_programs_container_by_its_own_name_and_trust(cluster: Workplace) -> None:
    assert outputs(cluster)["blobEndpoint"].endswith(".blob.core.windows.net/")
    assert node(cluster, "PUT", "data/shards/0.txt", "brought") == "201  "
    assert node(cluster, "GET", "data/shards/0.txt") == "200  brought"
    assert node(cluster, "GET", "data/shards/0.txt", script=CURL) == "brought"
    # Its roles are those of the two containers.
    assert node(cluster, "GET", "?comp=list").startswith("403 AuthorizationPermissionMismatch ")
    traffic = cluster.fab("rehearsal.status", "--json").json()["storage"]
    assert traffic[outputs(cluster)["storageAccount"]]["bytes_in"] == len("brought")


def test_the_operators_client_finds_the_account_once_a_role_lets_it(cluster: Workplace) -> None:
    with blob_service(outputs(cluster)["blobEndpoint"], cluster.folder.environment()) as client:
        blob = client.get_blob_client("data", "shards/1.bin")
        with pytest.raises(HttpResponseError, match="AuthorizationPermissionMismatch"):
            blob.upload_blob(b"")
        allow_operator(cluster)
        assert {c.name for c in client.list_containers()} == {"data", "results"}
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


@pytest.mark.for_every_change
def test_private_endpoint_and_nfs_server_are_made_and_nothing_differs(cluster: Workplace) -> None:
    cluster.configure(STACK, nodeCount=1, storage="privateEndpoint", nfs="vm", nfsSizeGib=1024)
    cluster.fab("up", "--yes")  # the nodes are made again
    cluster.pulumi("preview", "--stack", STACK, "--refresh", "--expect-no-changes")
    assert node(cluster, "GET", "data/shards/0.txt") == "200  brought"
    # Nobody else reaches the account any more, the operator included.
    with (
        blob_service(outputs(cluster)["blobEndpoint"], cluster.folder.environment()) as client,
        pytest.raises(HttpResponseError, match="AuthorizationFailure"),
    ):
        client.get_blob_client("data", "shards/0.txt").download_blob()
    kinds = {one["type"] for one in cluster.azure("/resources")["value"]}
    assert {"Microsoft.Network/privateEndpoints", "Microsoft.Compute/virtualMachines"} <= kinds


@pytest.mark.for_every_change
def test_with_the_cluster_goes_all_of_its_storage(cluster: Workplace) -> None:
    cluster.fab("down", "--yes")
    assert cluster.groups() == set()
    folder = cluster.folder.root / "storage"
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
