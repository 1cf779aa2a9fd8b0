"""One rehearsal and one running cluster for all tests that leave them as they found them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace, rehearsed_workplace

NODES_LIMIT = 8
"""Most nodes of the shared rehearsal; one more makes a scale set fail half-way."""


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace with a running rehearsal. That nothing of it is left in the end is a test of its own."""
    with rehearsed_workplace(tmp_path_factory.mktemp("e2e"), NODES_LIMIT) as made:
        yield made


@pytest.fixture(scope="session")
def shared(workplace: Workplace) -> Workplace:
    """The stack ``rehearsal`` is up with two nodes, or more once a test has let it grow."""
    workplace.configure("rehearsal", nodeCount=2)
    workplace.fab("up", "--stack", "rehearsal")
    return workplace


@pytest.fixture(scope="module")
def cluster(shared: Workplace) -> Iterator[Workplace]:
    """That stack, with a repository that holds nothing of other modules' tests."""
    before = set(shared.own.iterdir())
    yield shared
    for left in set(shared.own.iterdir()) - before:
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()
