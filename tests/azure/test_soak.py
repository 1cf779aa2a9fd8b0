"""A hundred clusters made and removed in a row: nothing is left of any, and the machine is as it was."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.soak, pytest.mark.timeout(4 * 3600)]

STACK = "rehearsal"
ROUNDS = int(os.environ.get("RANKLIFT_SOAK_ROUNDS", "100"))
GROWTH = 1.5
"""By how much the daemon's memory may have grown when all is over; it keeps what operations have said."""

CLIENTS = 16
"""How many connections of clients that have ended may still be open."""


def state(workplace: Workplace) -> object:
    """What Pulumi, the emulated Azure and the machine have, with no cluster up."""
    known = workplace.pulumi("stack", "export", "--stack", STACK).json()["deployment"]
    files = [
        str(path.relative_to(workplace.project))
        for path in (workplace.project / ".ranklift").rglob("*")
        # Pulumi keeps each update and what was before it: that is its history, and it says so.
        if workplace.folder.backend not in path.parents and path.name != "daemon.log"
    ]
    return {
        "resources": [one["type"] for one in known.get("resources", ())],
        "pending": known.get("pending_operations", []),
        "groups": sorted(workplace.groups()),
        "machine": asdict(workplace.owned()),
        "files": sorted(files),
        "temporary": sorted(path.name for path in workplace.temporary.iterdir()),
    }


def open_files(pid: int) -> int:
    """How many files and sockets a process has open; a few are of clients that have just ended."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory(pid: int) -> int:
    """A process's resident memory in kB."""
    (line,) = (one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in one)
    return int(line.split()[1])


def test_clusters_made_and_removed_in_a_row_leave_nothing(workplace: Workplace) -> None:
    workplace.configure(STACK, nodeCount=1)
    after_the_first: object = None
    at_first, files, seconds = 0, 0, []
    for number in range(1, ROUNDS + 1):
        began = time.monotonic()
        workplace.fab("up")
        result = workplace.fab("exec", "uname -n").out
        assert result == "node000000\n", f"round {number}: {result}"
        workplace.fab("down", "--yes")
        seconds.append(time.monotonic() - began)
        found = state(workplace)
        if after_the_first is None:
            after_the_first, at_first = found, memory(workplace.record.pid)
            files = open_files(workplace.record.pid)
        assert found == after_the_first, f"round {number}"
    assert after_the_first is not None
    grown = memory(workplace.record.pid) / at_first
    middle = sorted(seconds)[len(seconds) // 2]
    print(f"{ROUNDS} rounds, {middle:.1f} s each, {max(seconds):.1f} s the longest; memory x {grown:.2f}")  # noqa: T201
    assert grown < GROWTH
    assert open_files(workplace.record.pid) < files + CLIENTS
