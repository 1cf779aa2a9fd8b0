"""What tests of environments on nodes have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.client.environment_desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
