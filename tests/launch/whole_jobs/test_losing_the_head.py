"""The error for the operator when the head goes away while a job is followed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import IO

import pytest

from launch.client import submit
from launch.errors import GiveUpError, NodeUnreachable
from launch.host import Completed
from launch.job.plan import plan
from launch.job.spec import JobNode, JobSpec
from launch.remote.base import frames
from tests.launch.remote.sample_records import sample_state

JOB = "train-20260301-090507-0f3a"
STATE = sample_state(JOB, ranks=2, nodes=["node000000", "node000001"], port=6105, started=1.0)
TOLD = (
    f"node000000: job {JOB}: its head is gone or unreachable ({{}}); if it is gone, ranks on other nodes end "
    f"by themselves within 30 s, else the job continues; `fab logs -f {JOB}` follows it again, `fab jobs` "
    "shows its state"
)


class Head:
    """Sends ``output``, then breaks off with ``end``."""

    name = "node000000"

    def __init__(self, output: bytes, end: Exception | int) -> None:
        self._output, self._end = output, end

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
        if self._output:
            on_stdout(self._output)
        if isinstance(self._end, Exception):
            raise self._end
        return Completed(self._end, b"", b"")


RUNNING = frames.frame(frames.STATE, json.dumps(STATE).encode())
BROKE = NodeUnreachable("node000000", "the connection broke while python3 ran")


@pytest.mark.parametrize(
    ("output", "end", "reason"),
    [
        (RUNNING, BROKE, BROKE.reason),
        (b"", BROKE, BROKE.reason),
        (RUNNING, 128, "it stopped sending the job's output"),
        (RUNNING, 137, "it stopped sending the job's output"),
        (RUNNING, 0, "it stopped sending the job's output"),
    ],
)
def test_the_job_is_named_and_how_to_go_on(output: bytes, end: Exception | int, reason: str) -> None:
    with pytest.raises(NodeUnreachable) as caught:
        submit.follow(JOB, Head(output, end), lambda _: None, remote="hash")
    assert str(caught.value) == TOLD.format(reason)


def test_what_the_head_says_itself_is_told_as_it_is() -> None:
    with pytest.raises(GiveUpError, match="node000000: exit status 1"):
        submit.follow(JOB, Head(RUNNING, 1), lambda _: None, remote="hash")


def test_a_job_that_the_head_never_took_is_not_said_to_run() -> None:
    spec = JobSpec("train", "pytorch", ("true",))
    made = plan(spec, [JobNode("node000000", "10.0.0.4", 1)], size="Standard_ND40rs_v2", remote="hash")
    with pytest.raises(NodeUnreachable) as caught:
        submit.submit_and_follow(made, Head(b"", BROKE), lambda _: None)
    assert caught.value is BROKE
