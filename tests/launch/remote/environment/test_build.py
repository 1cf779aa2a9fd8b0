"""Tools that make an environment: how their ends are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.remote.environment.build import Failed, run
from tests.launch.remote.environment.image_requests import unreported


def test_a_tool_that_cannot_be_started_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=rf"building: {tmp_path}/tool cannot be started: No such file"):
        run("building", [f"{tmp_path}/tool"], {}, unreported)


def test_of_a_tool_that_fails_the_last_lines_are_kept() -> None:
    script = "for number in $(seq 30); do echo line $number; done; exit 3"
    with pytest.raises(Failed, match="building failed with exit status 3") as failed:
        run("building", ["sh", "-c", script], {"PATH": "/usr/bin:/bin"}, unreported)
    assert failed.value.lines == [f"line {number}" for number in range(11, 31)]
