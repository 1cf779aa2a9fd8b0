"""A rehearsed Azure for each subject: what one breaks, no other sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.workplace import Workplace

NODES_LIMIT = 12


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace with a running rehearsal; closing it sees to it that nothing is left."""
    made = Workplace(tmp_path_factory.mktemp("azure"))
    made.start(NODES_LIMIT)
    try:
        yield made
    finally:
        made.close()
