"""A rehearsed Azure for each subject: what one breaks, no other sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace, rehearsed_workplace

NODES_LIMIT = 12


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace with a running rehearsal; closing it sees to it that nothing is left."""
    with rehearsed_workplace(tmp_path_factory.mktemp("azure"), NODES_LIMIT) as made:
        yield made
