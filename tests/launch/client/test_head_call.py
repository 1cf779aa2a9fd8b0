"""A long call to a head: what comes while it works, its answer, and what it means that there is none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import IO, Any, Literal, TypedDict
from unittest.mock import Mock

import pytest

from launch.client.head_call import call_head
from launch.errors import GiveUpError
from launch.host import Completed
from launch.remote.store.tree_node import MARK


def head(exit_status: int, *answers: dict[str, Any], pieces: int = 1) -> Mock:
    """A head that greets, then answers in ``pieces``, and ends with this status."""
    text = b"welcome\n" + b"".join(MARK + json.dumps(answer).encode() + b"\n" for answer in answers)
    size = -(-len(text) // pieces)

    def stream(
        argv: list[str], on_stdout: Callable[[bytes], object], *, stdin: IO[bytes], timeout: float
    ) -> Completed:
        assert argv[-1] == "stage"
        assert stdin.read() == b'0000000011{"n": true}'
        assert timeout == 60
        for start in range(0, len(text), size):
            on_stdout(text[start : start + size])
        return Completed(exit_status, b"", b"")

    made = Mock(stream=stream)
    made.name = "node000000"
    return made


class Half(TypedDict):
    t: Literal["progress"]
    text: str


class Whole(TypedDict):
    t: Literal["staged"]


def called(host: Mock) -> tuple[dict[str, Any], list[str]]:
    shown: list[str] = []
    answer: dict[str, Any] = call_head(
        Half | Whole,
        host,
        "0123456789ab",
        "stage",
        {"n": True},
        lambda one: shown.append(one["text"]),
        purpose="the data was there",
        limit_s=60,
    )
    return answer, shown


@pytest.mark.parametrize("pieces", [1, 7])
def test_progress_is_passed_on_and_the_last_line_is_the_answer(pieces: int) -> None:
    lines = ({"t": "beat"}, {"t": "progress", "text": "half"}, {"t": "beat"}, {"t": "staged"}, {"t": "beat"})
    assert called(head(0, *lines, pieces=pieces)) == ({"t": "staged"}, ["half"])


@pytest.mark.parametrize(
    ("exit_status", "problem"),
    [
        (137, "node000000: signal 9 ended it before the data was there; launch again"),
        (0, "node000000: it stopped before the data was there"),
        (70, "node000000: exit status 70"),
    ],
)
def test_no_answer_is_named_by_how_the_command_ended(exit_status: int, problem: str) -> None:
    with pytest.raises(GiveUpError, match=f"^{problem}$"):
        called(head(exit_status, {"t": "progress", "text": "half"}))


def test_a_line_in_many_pieces_takes_time_in_proportion_to_them() -> None:
    def cost(length: int) -> float:
        line = {"t": "progress", "text": "x" * length}
        began = time.process_time()
        called(head(0, line, {"t": "staged"}, pieces=length // 10))
        return time.process_time() - began

    cost(1000)
    few, many = min(cost(100_000) for _ in range(3)), min(cost(800_000) for _ in range(3))
    assert many < 20 * few
