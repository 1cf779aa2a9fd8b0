"""Every time that is printed has its zone, and all have one form."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from launch.moments import cell, utc

ROOT = Path(__file__).parents[2]
WHEN = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
OF_OTHERS = {
    "infra/arm/impact.py": "Azure's own form",
    "launch/moments.py": "",
    "playbooks/nodes/drain.py": "the node's shell writes it, with its Z",
}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_a_time_is_the_same_on_every_machine(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        assert utc(WHEN) == utc(WHEN.astimezone()) == "2026-03-01 12:00:05 UTC"
        assert cell(WHEN.astimezone(), seconds=False) == "2026-03-01 12:00"
    time.tzset()


def test_no_other_module_of_the_operator_formats_a_time() -> None:
    modules = [path for room in ("playbooks", "launch", "infra") for path in (ROOT / room).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in modules if "%H:%M" in path.read_text()}
    # The code of the nodes is copied without any other.
    assert {name for name in found if not name.startswith("launch/remote/")} <= set(OF_OTHERS)
