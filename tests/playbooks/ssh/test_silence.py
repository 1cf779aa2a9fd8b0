"""Nodes that let a command wait are named, and the next command does not wait as long for them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

from launch.remote.base import timing
from playbooks.ssh import silence
from playbooks.ssh.silence import KEPT_S, SHORT_S, Silence

NODE = "node000003"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[str]:
    monkeypatch.setattr(silence, "NAMED_S", 0.02)
    return SimpleQueue()


def fail(watched: Silence, error: Exception) -> None:
    with pytest.raises(type(error)), watched.connecting(NODE):
        raise error


def limit_of(watched: Silence) -> float:
    with pytest.raises(InterruptedError), watched.connecting(NODE) as limit:
        raise InterruptedError
    return limit


def test_a_node_that_lets_a_command_wait_is_named_once(tmp_path: Path, told: SimpleQueue[str]) -> None:
    watched = Silence(tmp_path, told.put)
    with watched.connecting(NODE), watched.connecting("node000004"):
        first = told.get(timeout=60)
        if "[" not in first:  # the thread looked between the two
            first += told.get(timeout=60)
        with watched.connecting("node000007"):
            second = told.get(timeout=60)
    assert "000003" in first and "000004" in first
    assert second == f"node000007: no answer yet, waiting for up to {timing.OPERATOR_CONNECT_S} s"
    with watched.connecting(NODE), watched.connecting("node000008"):
        assert "000008" in told.get(timeout=60)
    assert told.empty()


def test_a_node_that_gave_no_answer_is_waited_for_a_shorter_time_for_a_minute(
    tmp_path: Path, told: SimpleQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = timing.OPERATOR_CONNECT_S
    monkeypatch.setattr(timing, "OPERATOR_CONNECT_S", 0)
    fail(Silence(tmp_path / "silent", told.put), TimeoutError())
    monkeypatch.setattr(timing, "OPERATOR_CONNECT_S", long)
    another = Silence(tmp_path / "silent", told.put)  # of the next command
    assert limit_of(another) == SHORT_S
    before = time.time() - KEPT_S - 1
    os.utime(tmp_path / "silent" / NODE, (before, before))
    assert limit_of(another) == long


def test_one_that_refused_at_once_or_answered_since_is_not_remembered(
    tmp_path: Path, told: SimpleQueue[str]
) -> None:
    watched = Silence(tmp_path, told.put)
    fail(watched, ConnectionRefusedError())
    assert limit_of(watched) == timing.OPERATOR_CONNECT_S
    (tmp_path / NODE).touch()
    with watched.connecting(NODE) as limit:
        assert limit == SHORT_S
    assert limit_of(watched) == timing.OPERATOR_CONNECT_S


def test_a_folder_that_cannot_be_written_changes_no_error(tmp_path: Path, told: SimpleQueue[str]) -> None:
    (tmp_path / "file").touch()
    fail(Silence(tmp_path / "file", told.put), TimeoutError())
