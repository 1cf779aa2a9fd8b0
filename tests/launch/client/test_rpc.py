"""The errors for a head that does not answer well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import IO

import pytest

from launch.client.rpc import ask
from launch.client.submit import follow, submit_and_follow, wait_for_end
from launch.errors import GiveUpError, InputError, NotPushed
from launch.host import Completed
from launch.job.plan import plan
from launch.job.spec import JobNode, JobSpec
from launch.remote.base import frames
from launch.remote.base.payloads import JobListing
from launch.remote.cli import REFUSED, main
from launch.remote.environment.request import EnvironmentListing

PLAN = plan(
    JobSpec("t", "mpi", ("true",)),
    (JobNode("node000000", "10.0.0.4", 1),),
    size="Standard_ND40rs_v2",
    remote="abc",
)


class Head:
    """Answers everything with the same."""

    name = "node000000"

    def __init__(self, answer: Completed) -> None:
        self._answer = answer

    def run(
        self, _: Sequence[str], /, *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> Completed:
        return self._answer

    def stream(
        self,
        _: Sequence[str],
        on_stdout: Callable[[bytes], object],
        /,
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        on_stdout(self._answer.stdout)
        return self._answer


def test_no_answer_names_the_question() -> None:
    with pytest.raises(GiveUpError, match=r"^node000000: no answer to cancel t-1 10$"):
        ask(JobListing, Head(Completed(0, b"", b"")), "abc", "cancel", "t-1", "10")


def test_a_node_with_older_code_names_the_push() -> None:
    with redirect_stderr(StringIO()) as words:
        status = main(["environments-of-tomorrow"])
    head = Head(Completed(status, b"", words.getvalue().encode()))
    with pytest.raises(
        GiveUpError, match=r"^node000000: its node code is older than this command: `fab push` "
    ):
        ask(EnvironmentListing, head, "abc", "environments-of-tomorrow")


def test_a_refusal_says_where_to_look() -> None:
    refusal = Completed(REFUSED, b"", b"no job t-1 on this head\n")
    with pytest.raises(InputError, match=r"^job = 't-1': no job t-1 on this head; see `fab jobs`$"):
        ask(JobListing, Head(refusal), "abc", "show", "t-1", job="t-1")


def test_a_head_that_was_made_anew_is_told_from_one_that_was_never_pushed_to() -> None:
    answer = Completed(2, b"", b"python3: can't open file '.ranklift/remote/abc/__main__.py'\n")
    with pytest.raises(NotPushed, match=r"abc/__main__\.py': push first$"):
        ask(JobListing, Head(answer), "abc", "list")
    with pytest.raises(NotPushed, match=r"^node000000: .* replaced, .*; `fab collect t-1` brings"):
        ask(JobListing, Head(answer), "abc", "show", "t-1", job="t-1")


@pytest.mark.parametrize(
    "written",
    [b"Welcome to node000000\n", frames.frame(frames.STATE, b"{nonsense")],
    ids=["a start-up file's greeting", "a frame that is no answer"],
)
@pytest.mark.parametrize("question", ["ask", "follow", "so_far", "submit", "wait"])
def test_an_answer_that_cannot_be_read_names_the_node_and_what_may_have_written_there(
    written: bytes, question: str
) -> None:
    head = Head(Completed(0, written, b""))
    ways: dict[str, Callable[[], object]] = {
        "ask": lambda: ask(JobListing, head, "abc", "list"),
        "follow": lambda: follow("t-1", head, lambda _: None, remote="abc"),
        "so_far": lambda: follow("t-1", head, lambda _: None, remote="abc", wait=False),
        "submit": lambda: submit_and_follow(PLAN, head, lambda _: None),
        "wait": lambda: wait_for_end("t-1", head, remote="abc"),
    }
    with pytest.raises(
        GiveUpError, match=r"^node000000: its answer cannot be decoded \(.*~/\.bashrc, may write"
    ):
        ways[question]()
