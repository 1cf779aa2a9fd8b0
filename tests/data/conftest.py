"""A rehearsed Azure with storage for each subject: what one breaks, no other sees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rehearsal import azurite
from tests.e2e.workplace import Workplace

NODES_LIMIT = 6


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace with a running rehearsal; closing it checks that nothing is left."""
    if not azurite.installed():
        pytest.skip("Azurite is not installed: tools/setup --azure")
    made = Workplace(tmp_path_factory.mktemp("data"))
    made.start(NODES_LIMIT, None)
    try:
        yield made
    finally:
        made.close()
