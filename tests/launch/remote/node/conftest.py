"""A snapshot, and the folder of a job whose working folder is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.remote.node.working_folder import folder, snapshot_in


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return snapshot_in(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return folder(tmp_path, "t-1")
