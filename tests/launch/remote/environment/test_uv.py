"""The wheels of tools that a head needs to make environments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.remote.environment.build import Failed
from launch.remote.environment.uv import VERSION, WHEELS, find_uv
from tests.launch.remote.environment.image_requests import unreported

pytestmark = pytest.mark.usefixtures("programs")


def test_a_wheel_sent_along_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    name, _ = WHEELS[os.uname().machine]
    (tmp_path / name).write_bytes(b"another file of that name")
    with pytest.raises(Failed, match=rf"--find-links: {name} has another SHA-256 than the pinned one"):
        find_uv(str(tmp_path / "tools"), [], [str(tmp_path)], unreported)
    assert not (tmp_path / f"tools/uv-{VERSION}").exists()
