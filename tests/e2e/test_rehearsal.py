"""The rehearsal itself: one a project, and nothing of it left however it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.workplace import NOTHING, Workplace, rehearsed_workplace

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace with a rehearsal of its own and one node in it."""
    with rehearsed_workplace(tmp_path, 2) as made:
        made.configure("rehearsal", nodeCount=1)
        made.fab("up", "--stack", "rehearsal")
        yield made


def test_a_second_start_is_refused_and_a_killed_rehearsal_leaves_nothing_that_runs(alone: Workplace) -> None:
    record = alone.record
    refused = alone.fab("rehearsal.start", status=2)
    assert refused.err == (
        f"error: rehearsal: already runs in {alone.project} (process {record.pid}); "
        "use it, or run fab rehearsal.stop\n"
    )
    assert alone.record == record
    assert alone.fab("exec", "uname -n").out == "node000000\n"

    before = alone.owned()
    assert len(before.processes) > 3
    assert len(before.namespaces) > 3
    assert len(before.ports) > 3
    os.kill(record.pid, signal.SIGKILL)
    assert alone.remains(before) == NOTHING

    result = alone.fab("rehearsal.status", status=1).out
    left = [
        f"the record of process {record.pid}, which has ended",
        "1 disks of nodes of ",
        "Pulumi stack rehearsal with 14 resources",
    ]
    assert result.startswith("no rehearsal runs here\n")
    for line in left:
        assert f"left by a killed rehearsal: {line}" in result
    gone = alone.fab("status", "--stack", "rehearsal", status=2)
    assert "run fab rehearsal.start" in gone.err

    started = alone.start(2)
    for line in left:
        assert f"removed, left by a killed rehearsal: {line}" in started.err
    assert alone.record.pid != record.pid
    assert alone.groups() == set()
    up = alone.fab("up", "--stack", "rehearsal")
    assert "15 created" in up.err
    assert alone.fab("exec", "uname -n").out == "node000000\n"


def test_two_projects_rehearse_beside_each_other(workplace: Workplace, alone: Workplace) -> None:
    """One is stopped; the other does not notice."""
    before = workplace.record
    assert alone.record.pid != before.pid
    stopped = alone.fab("rehearsal.stop")
    assert "removed with the rehearsal: stack rehearsal (14 resources)" in stopped.err
    assert "1 network, " in stopped.out
    assert workplace.record == before
    workplace.fab("rehearsal.status")
    alone.start(2)
