"""A node's slots go to one holder at a time: a job's runners, or a command that removes the node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.remote.base.names import drained_at
from launch.remote.base.payloads import SlotRequest
from launch.remote.node import slots

SPEC: SlotRequest = {"job": "t-1", "slots": [0, 1], "of": 4, "restarts": 0}
REMOVAL = "`fab scale 3` of ann on desk (process 7)"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@contextmanager
def holding(home: Path, limit_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """The module run as a program from its text, as a command runs it on a node; it holds what it can."""
    text = Path(slots.__file__).read_text()
    words = [sys.executable, "-I", "-S", "-c", text, "4", REMOVAL, str(limit_s)]
    with subprocess.Popen(
        words, env={"HOME": str(home)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            yield holder
        finally:
            holder.kill()


def test_slots_are_held_until_their_holder_lets_go(home: Path) -> None:
    held = slots.take_slots(SPEC)
    with pytest.raises(slots.SlotsTaken, match=r"slots \[0, 1\] are held by t-1"):
        slots.take_slots({**SPEC, "job": "t-2", "slots": [1, 2]})
    for descriptor in held:
        os.close(descriptor)
    for descriptor in slots.take_slots({**SPEC, "job": "t-2", "slots": [1, 2]}):
        os.close(descriptor)


def test_who_is_refused_learns_of_every_slot_that_others_hold_but_not_of_its_own(home: Path) -> None:
    held = [
        *slots.take_slots({**SPEC, "job": "t-1", "slots": [0]}),
        *slots.take_slots({**SPEC, "job": "t-2", "slots": [2]}),
        *slots.take_slots({**SPEC, "job": "t-3", "slots": [3]}),
    ]
    with pytest.raises(slots.SlotsTaken) as refused:
        slots.take_slots({**SPEC, "job": "t-2", "slots": [0]})
    assert refused.value.taken == [(0, "t-1"), (3, "t-3")]
    assert slots.taken_slots(4) == [(0, "t-1"), (2, "t-2"), (3, "t-3")]
    for descriptor in held:
        os.close(descriptor)
    assert slots.taken_slots(4) == []


def test_a_command_that_removes_the_node_keeps_jobs_off_until_its_connection_ends(home: Path) -> None:
    with holding(home, 60) as holder:
        with pytest.raises(slots.SlotsTaken) as refused:
            slots.take_slots(SPEC)
        assert refused.value.taken == [(slot, REMOVAL) for slot in range(4)]
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait(10) == 0
        for descriptor in slots.take_slots(SPEC):
            os.close(descriptor)


def test_nothing_is_held_longer_than_the_command_may_take(home: Path) -> None:
    began = time.monotonic()
    with holding(home, 0.5) as holder:
        assert holder.wait(10) == 0
    assert time.monotonic() - began >= 0.5
    assert slots.taken_slots(4) == []


def test_a_job_that_was_quicker_keeps_its_slots_and_is_seen(home: Path) -> None:
    held = slots.take_slots(SPEC)
    with holding(home, 60):
        assert slots.taken_slots(4) == [(0, "t-1"), (1, "t-1"), (2, REMOVAL), (3, REMOVAL)]
    for descriptor in held:
        os.close(descriptor)


class TestADrainedNode:
    TEXT = "drained 2026-03-01T09:05:07Z by ann on desk"

    @pytest.fixture(autouse=True)
    def note(self, home: Path) -> Path:
        held = slots.take_slots({**SPEC, "slots": [2]})
        path = Path(f"{home}{slots.DRAINED}")
        path.write_text(f"{self.TEXT}\n")
        for descriptor in held:
            os.close(descriptor)
        return path

    def test_its_drain_holds_every_slot_that_no_job_has(self, note: Path) -> None:
        with pytest.raises(slots.SlotsTaken) as refused:
            slots.take_slots(SPEC)
        assert refused.value.taken == [(slot, self.TEXT) for slot in range(4)]
        note.unlink()
        held = slots.take_slots(SPEC)
        note.write_text(self.TEXT)
        assert slots.taken_slots(4) == [(0, "t-1"), (1, "t-1"), (2, self.TEXT), (3, self.TEXT)]
        for descriptor in held:
            os.close(descriptor)

    def test_a_restart_keeps_its_slots(self) -> None:
        for descriptor in slots.take_slots({**SPEC, "restarts": 1}):
            os.close(descriptor)

    @pytest.mark.parametrize("text", ["", "drained 2026-99-99T00:00:00Z by x"])
    def test_a_torn_note_is_a_drain(self, note: Path, text: str) -> None:
        note.write_text(text)
        with pytest.raises(slots.SlotsTaken) as refused:
            slots.take_slots(SPEC)
        assert drained_at(refused.value.taken[0][1]) == 0.0

    def test_a_command_that_removes_the_node_holds_them_nevertheless(self, home: Path) -> None:
        with holding(home, 60):
            assert slots.taken_slots(4) == [(slot, REMOVAL) for slot in range(4)]
