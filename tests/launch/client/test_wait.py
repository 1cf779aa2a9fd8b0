"""Waiting for a job's end, whatever happens to the connection meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import IO

import pytest

from launch.client.submit import wait_for_end
from launch.errors import GiveUpError, InputError, NodeUnreachable, StepTimeout
from launch.host import Completed
from launch.remote.base import frames, timing
from launch.remote.cli import REFUSED
from tests.launch.whole_jobs.test_losing_the_head import JOB, STATE


def state_frame(state: str, status: int | None = None) -> bytes:
    result = {**STATE, "state": state, "exit_status": status}
    return frames.frame(frames.STATE, json.dumps(result).encode())


BROKE = NodeUnreachable("node000000", "the connection broke while python3 ran")
RUNNING, BEAT, ENDED = state_frame("RUNNING"), frames.frame(frames.BEAT), state_frame("SUCCEEDED", 0)
Answer = tuple[bytes, Exception | int]


class Head:
    """Gives one answer after the other: what it says, and how that ends."""

    name = "node000000"

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.limits: list[float | None] = []

    def run(
        self, argv: Sequence[str], *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> Completed:
        raise NotImplementedError

    def stream(
        self,
        argv: Sequence[str],
        on_stdout: Callable[[bytes], object],
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        assert list(argv)[-2:] == ["wait", JOB]
        self.limits.append(timeout)
        data, end = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if data:
            on_stdout(data)
        if isinstance(end, Exception):
            raise end
        return Completed(end, b"", b"there is no job" if end == REFUSED else b"")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "ASK_AGAIN_S", 0.01)


def test_the_last_state_is_given_and_frames_may_come_in_pieces() -> None:
    head = Head((RUNNING + BEAT + ENDED, 0))
    assert wait_for_end(JOB, head, remote="hash").state == "SUCCEEDED"
    assert head.limits == [None]


def test_a_connection_that_breaks_is_made_again_and_said_once_each_time() -> None:
    result: list[str] = []
    refused = NodeUnreachable("node000000", "refused")
    head = Head((RUNNING, BROKE), (b"", refused), (b"", refused), (RUNNING, 137), (ENDED, 0))
    assert wait_for_end(JOB, head, remote="hash", on_break=result.append).state == "SUCCEEDED"
    assert result == [BROKE.reason, "it stopped reporting the job's state"]


def test_a_head_that_does_not_come_back_is_named_after_the_patience() -> None:
    head = Head((RUNNING, BROKE), (b"", NodeUnreachable("node000000", "refused")))
    with pytest.raises(NodeUnreachable, match=rf"node000000: no answer about job {JOB} for 0 s \(refused\)"):
        wait_for_end(JOB, head, remote="hash", patience=0.1)


def test_the_end_of_the_time_gives_where_the_job_is() -> None:
    head = Head((RUNNING, StepTimeout("node000000", "python3", 0.05)))
    assert wait_for_end(JOB, head, remote="hash", timeout=0.05).state == "RUNNING"
    assert head.limits[0] is not None


def test_the_end_of_the_time_counts_also_while_the_head_is_away() -> None:
    head = Head((RUNNING, BROKE), (b"", NodeUnreachable("node000000", "refused")))
    assert wait_for_end(JOB, head, remote="hash", timeout=0.1).state == "RUNNING"
    with pytest.raises(NodeUnreachable, match=rf"no answer about job {JOB} for 0 s"):
        wait_for_end(JOB, Head((b"", BROKE)), remote="hash", timeout=0.1)


def test_what_asking_again_does_not_mend_is_raised_at_once() -> None:
    with pytest.raises(InputError, match="there is no job"):
        wait_for_end(JOB, Head((b"", REFUSED)), remote="hash")
    with pytest.raises(GiveUpError, match="exit status 1"):
        wait_for_end(JOB, Head((RUNNING, 1)), remote="hash")
