"""A rehearsed Azure with storage for each subject: what one breaks, no other sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.storage.blob import BlobServiceClient

from infra.arm.clients import blob_service
from rehearsal import azurite
from rehearsal.arm.core.subscription import OPERATOR
from tests.data.staging_nodes import Nodes
from tests.e2e.workplace import Workplace, rehearsed_workplace

NODES_LIMIT = 6


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace with a running rehearsal; closing it checks that nothing is left."""
    assert azurite.installed(), "Azurite is not installed: make azurite"
    with rehearsed_workplace(tmp_path_factory.mktemp("data"), NODES_LIMIT, None) as made:
        yield made


@pytest.fixture(scope="module")
def storage_client(workplace: Workplace) -> Iterator[BlobServiceClient]:
    """The operator's own client of the stack's storage."""
    found = workplace.pulumi("stack", "output", "--json", "--stack", "rehearsal").json()
    with blob_service(found["blobEndpoint"], workplace.folder.environment()) as made:
        yield made


@pytest.fixture(scope="module")
def made_nodes(workplace: Workplace, request: pytest.FixtureRequest) -> int:
    """Brings nodes up, 2 unless the module's NODES is another number, with storage that the operator uses."""
    count = int(getattr(request.module, "NODES", 2))
    workplace.configure("rehearsal", nodeCount=count, storage="serviceEndpoint", dataOperators=OPERATOR)
    workplace.fab("up")
    return count


@pytest.fixture(scope="module")
def nodes(workplace: Workplace, made_nodes: int, storage_client: BlobServiceClient) -> Nodes:
    """Nodes, and what is in their storage."""
    return Nodes(workplace, storage_client.get_container_client("data"))
