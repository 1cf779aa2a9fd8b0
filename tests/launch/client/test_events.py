"""From the head's frames to lines and states."""

from __future__ import annotations

import json

import pytest

from launch.client.events import Event, JobState, LogLine, Quiet, Reader, StateChange
from launch.errors import JobFailed
from launch.remote.base import frames
from tests.launch.remote.sample_records import sample_state

STATE = sample_state("t-1", kind="mpi", nodes=["node000000", "node000001"], ranks=2, port=6105, started=2.0)

JOB = frames.frame(
    frames.JOB, json.dumps({"job": "t-1", "nodes": STATE["nodes"], "ranks": STATE["ranks"]}).encode()
)


def state(**changes: object) -> bytes:
    return frames.frame(frames.STATE, json.dumps({**STATE, **changes}).encode())


def output(data: bytes, rank: int = 0, node: int = 0, stream: int = 1, at: float = 1.0) -> bytes:
    return frames.frame(frames.OUT, frames.RECORD.pack(at, rank, node, stream, len(data)) + data)


def events_of(*parts: bytes) -> list[Event]:
    events: list[Event] = []
    Reader(events.append).feed(b"".join(parts))
    return events


def lines(*parts: bytes) -> list[tuple[int | None, str, str, bytes]]:
    return [(e.rank, e.node, e.stream, e.data) for e in events_of(JOB, *parts) if isinstance(e, LogLine)]


def test_lines_are_put_together_from_pieces_by_rank_and_stream() -> None:
    assert lines(
        output(b"one\ntw"), output(b"other\n", 1, 1), output(b"oops\n", stream=2), output(b"o\n")
    ) == [
        (0, "node000000", "stdout", b"one"),
        (1, "node000001", "stdout", b"other"),
        (0, "node000000", "stderr", b"oops"),
        (0, "node000000", "stdout", b"two"),
    ]


def test_carriage_returns_end_lines_too_even_at_a_cut() -> None:
    events = events_of(JOB, output(b"10%\r20%\r"), output(b"\n30%\r"), output(b"done\r\n"))
    assert [(e.data, e.overwritten) for e in events if isinstance(e, LogLine)] == [
        (b"10%", True),
        (b"20%", False),
        (b"30%", True),
        (b"done", False),
    ]


def test_a_notice_stands_after_the_line_that_had_begun_not_in_it() -> None:
    assert [
        line[2:] for line in lines(output(b"half"), output(b"left out", stream=3), output(b" a line\n"))
    ] == [
        ("stdout", b"half"),
        ("notice", b"left out"),
        ("stdout", b" a line"),
    ]


def test_a_line_that_never_ends_is_told_in_pieces_that_fit_into_memory() -> None:
    piece = b"x" * 700_000
    assert [len(line[-1]) for line in lines(*[output(piece)] * 4)] == [2_100_000]


def test_an_unfinished_line_comes_out_before_the_end() -> None:
    events = events_of(JOB, state(), output(b"last words"), state(state="SUCCEEDED", exit_status=0))
    assert isinstance(events[-2], LogLine)
    assert events[-2].data == b"last words"
    assert isinstance(events[-1], StateChange)


def test_lines_of_a_job_that_has_ended_have_their_nodes_names_too() -> None:
    events = events_of(JOB, output(b"one\ntwo\n", 1, 1), state(state="SUCCEEDED", exit_status=0))
    assert [(e.rank, e.node, e.data) for e in events if isinstance(e, LogLine)] == [
        (1, "node000001", b"one"),
        (1, "node000001", b"two"),
    ]
    assert isinstance(events[-1], StateChange)


def test_the_launchers_words_have_no_rank() -> None:
    assert lines(output(b"mpirun says\n", rank=-1)) == [(None, "node000000", "stdout", b"mpirun says")]


def test_the_same_state_is_told_once() -> None:
    assert len(events_of(state(), state())) == 1


def test_a_sign_of_life_says_that_nothing_is_on_its_way() -> None:
    assert events_of(frames.frame(frames.BEAT)) == [Quiet()]


def test_the_job_is_told_before_anything_of_it() -> None:
    jobs: list[tuple[tuple[str, ...], int]] = []
    Reader(lambda _: None, lambda nodes, ranks: jobs.append((nodes, ranks))).feed(JOB)
    assert jobs == [(("node000000", "node000001"), 2)]


@pytest.mark.parametrize(
    ("name", "status"), [("INCOMPLETE", 74), ("FAILED", 3), ("CANCELLED", 130), ("LOST", 255)]
)
def test_check_raises_for_every_bad_end(name: str, status: int) -> None:
    with pytest.raises(JobFailed) as failed:
        JobState.from_dict(sample_state(state=name, exit_status=status, reason="why")).check()
    assert failed.value.exit_status == status


@pytest.mark.parametrize("name", ["QUEUED", "RUNNING", "SUCCEEDED"])
def test_check_is_silent_otherwise(name: str) -> None:
    JobState.from_dict(sample_state(state=name)).check()
