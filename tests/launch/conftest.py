"""What many tests of jobs begin and end with, and what lies here and is no test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.standin import Nodes, end_everything

collect_ignore = ["jobfile/files", "oracles"]


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    """Three stand-in nodes with 2, 1 and 3 slots."""
    return Nodes(tmp_path, [2, 1, 3])


@pytest.fixture
def nothing_runs_on() -> Iterator[None]:
    """Ends what the test has started and did not end."""
    yield
    end_everything()
