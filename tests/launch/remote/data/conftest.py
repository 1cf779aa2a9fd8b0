"""Storage on loopback, and nodes to stage on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.launch.remote.data.staging_cluster import Cluster
from tests.launch.remote.data.storage_server import Storage, serve


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with serve(tmp_path) as served:
        yield served


@pytest.fixture
def cluster(tmp_path: Path, storage: Storage) -> Iterator[Callable[[int], Cluster]]:
    """Makes nodes, as many as asked for."""
    made: list[Cluster] = []

    def make(count: int) -> Cluster:
        made.append(Cluster(tmp_path, count, storage))
        return made[-1]

    yield make
    for one in made:
        one.close()
