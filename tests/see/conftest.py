"""One rehearsal with one cluster for all files: jobs that run there are watched, and disturbed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace, rehearsed_workplace
from tests.measured import figures, pytest_terminal_summary

__all__ = ["figures", "pytest_terminal_summary"]

NODES = 4
METRICS_PORT = 9500
"""Where each node serves metrics."""


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace with a running rehearsal."""
    with rehearsed_workplace(tmp_path_factory.mktemp("see"), 2 * NODES + 2) as made:
        yield made


@pytest.fixture(scope="session")
def cluster(workplace: Workplace) -> Iterator[Workplace]:
    """Four nodes of Standard_ND40rs_v2."""
    workplace.configure("rehearsal", nodeCount=NODES, metricsPort=METRICS_PORT)
    workplace.fab("up", "--stack", "rehearsal")
    yield workplace
    workplace.fab("down", "--stack", "rehearsal", "--yes")


@pytest.fixture
def healed(cluster: Workplace) -> Iterator[Workplace]:
    """That cluster; the faults that the test injects end with it."""
    yield cluster
    cluster.fab("rehearsal.fault", "clear")
