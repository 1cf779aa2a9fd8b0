"""One running cluster of four nodes for all rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace, rehearsed_workplace
from tests.measured import figures, pytest_terminal_summary

__all__ = ["figures", "pytest_terminal_summary"]

NODES = 4


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace whose stack ``rehearsal`` is up; nothing of it is left in the end."""
    with rehearsed_workplace(tmp_path_factory.mktemp("frameworks"), NODES) as made:
        made.configure("rehearsal", nodeCount=NODES)
        made.fab("up", "--stack", "rehearsal")
        yield made
