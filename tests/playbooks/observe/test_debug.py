"""What `fab debug` prints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pytest

from launch.client.debug import DebugReport, debug_job
from launch.errors import InputError
from launch.host import Completed
from launch.remote.base import frames
from launch.remote.cli import REFUSED
from launch.remote.debug.debug_records import DebugAnswer
from launch.remote.hangs.verdict import judge
from playbooks.observe.debug import debug_text
from tests.launch.remote.hangs.hanging_ranks import Job, broadcast, loading

GOLDEN = Path(__file__).parent / "golden"


class Head:
    """Answers everything with the same, and keeps what it was asked."""

    name = "node000000"

    def __init__(self, answer: Completed) -> None:
        self.answer = answer
        self.asked: Sequence[str] = ()

    def run(
        self, argv: Sequence[str], /, *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> Completed:
        self.asked = argv
        return self.answer

    def stream(
        self,
        argv: Sequence[str],
        on_stdout: Callable[[bytes], object],
        /,
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        raise NotImplementedError


def report(job: Job) -> DebugReport:
    answer: DebugAnswer = {
        "request": "abc",
        "job": "t-1",
        "state": "RUNNING",
        "time": 1.0,
        "seconds": 2.345,
        "facts": job.facts,
        "verdict": judge(job.facts),
    }
    head = Head(Completed(0, frames.frame(frames.STATE, json.dumps(answer).encode()), b""))
    found = debug_job("t-1", head, remote="abc", py_spy=".ranklift/py-spy")
    assert list(head.asked[-3:]) == ["debug", "t-1", ".ranklift/py-spy"]
    return found


def hanging() -> Job:
    """A rank loads data, one is stopped in the kernel's hands, one is not Python's."""
    job = Job(16)
    job.puts(5, loading())
    job.facts["silent_s"]["5"] = 610
    job.main(9).update({"threads": [], "later": [], "name": "a.out", "state": "R", "kernel_function": ""})
    job.main(9)["cpu_ms"] = 1900
    job.facts["nodes"]["node000001"][0]["problems"] = ["NVIDIA's driver did not answer within 2.0 s"]
    return job


def mismatched() -> Job:
    job = Job(64)
    job.puts(17, broadcast())
    return job


@pytest.mark.parametrize("make", [hanging, mismatched])
def test_the_whole_text(make: Callable[[], Job]) -> None:
    text = debug_text(report(make())) + "\n"
    path = GOLDEN / f"debug-{make.__name__}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_the_report_has_the_verdict_and_each_rank() -> None:
    found = report(mismatched())
    assert (found.kind, found.ranks_at_fault, found.nodes_at_fault) == (
        "mismatched-collective",
        (17,),
        ("node000004",),
    )
    assert [len(fold.ranks) for fold in found.folds] == [63, 1]
    assert (found.ranks[17].node, found.ranks[17].pid, found.ranks[17].silent_s) == ("node000004", 117, 600)


def test_a_job_that_does_not_run_is_refused_with_the_heads_words() -> None:
    refused = Completed(REFUSED, b"", b"job t-1 is QUEUED, its ranks do not run yet: waits for its turn\n")
    with pytest.raises(InputError, match="is QUEUED"):
        debug_job("t-1", Head(refused), remote="abc", py_spy="")
