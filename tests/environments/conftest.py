"""Stand-in nodes that hold an image, and jobs that run in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.debian_image import unpack
from tests.launch.standin import Nodes, end_everything


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    """Three stand-in nodes with 2, 1 and 3 slots."""
    return Nodes(tmp_path, [2, 1, 3])


@pytest.fixture
def nothing_runs_on() -> Iterator[None]:
    """Ends what the test has started and did not end."""
    yield
    end_everything()


@pytest.fixture(scope="session")
def image_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's files, unpacked."""
    root = unpack(tmp_path_factory.mktemp("image") / "root")
    yield root
    shutil.rmtree(root)
