"""One rehearsal, and a cluster of it for each file: nodes with GPUs and InfiniBand, which tests break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace, rehearsed_workplace

NODES = 3


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace with a running rehearsal."""
    with rehearsed_workplace(tmp_path_factory.mktemp("health"), 8) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Iterator[Workplace]:
    """Three nodes of Standard_ND40rs_v2, for one file."""
    workplace.configure("rehearsal", nodeCount=NODES)
    workplace.fab("up", "--stack", "rehearsal")
    yield workplace
    workplace.fab("down", "--stack", "rehearsal", "--yes")


@pytest.fixture
def healed(cluster: Workplace) -> Iterator[Workplace]:
    """That cluster; the faults that the test injects end with it."""
    yield cluster
    cluster.fab("rehearsal.fault", "clear")
