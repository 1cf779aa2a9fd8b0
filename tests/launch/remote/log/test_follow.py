"""What somebody who looks at a job is sent: all of its output, or what they asked for, and its states."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from launch.client.events import LogLine, Reader, StateChange
from launch.remote.base import frames, job_dir, processes
from launch.remote.base.frames import NOTICE
from launch.remote.base.payloads import LogQuery
from launch.remote.log import follow
from launch.remote.log.writer import LAUNCHER, StreamWriter
from tests.launch.remote.sample_records import sample_plan, sample_state

NODES = ["node000000", "node000001", "node00000a"]
STATE = sample_state("t-1", nodes=NODES, ranks=6, port=6105, started=2.0)


class Job:
    """A job's folder on its head, as its supervisor leaves it; time is what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, segment: int = 1 << 20) -> None:
        self.folder = job_dir.Folder("t-1")
        self.folder.create(sample_plan(nodes=[{"name": name, "ranks": [{}, {}]} for name in NODES]))
        self.write_state("RUNNING")
        self.stream = StreamWriter(self.folder.path, segment)
        self._monkeypatch = monkeypatch

    def write_state(self, state: str) -> None:
        result = {**STATE, "state": state, "supervisor": processes.identity(1)}
        Path(self.folder.file("state.json")).write_text(json.dumps(result))

    def say(self, rank: int, text: str, at: float | None = None, stream: int = 1) -> None:
        if at is not None:
            self._monkeypatch.setattr(time, "time", lambda: at)
        self.stream.write(rank, max(0, rank // 2), stream, text.encode())
        self._monkeypatch.undo()

    def shown(self, **wish: Any) -> list[tuple[int | None, str]]:
        """Rank and text of every line that is there now."""
        events: list[Any] = []
        reader = Reader(events.append)
        follow.follow(self.folder, cast("LogQuery", {"wait": False, **wish}), reader.feed)
        reader.end()
        return [(event.rank, event.data.decode()) for event in events if isinstance(event, LogLine)]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def job(_home: None) -> Job:
    with pytest.MonkeyPatch.context() as patch:
        return Job(patch)


class TestChoosing:
    def test_everything_in_the_order_in_which_it_came(self, job: Job) -> None:
        for number in range(3):
            for rank in range(6):
                job.say(rank, f"line {number}\n")
        assert job.shown() == [(rank, f"line {number}") for number in range(3) for rank in range(6)]

    def test_ranks(self, job: Job) -> None:
        for rank in (*range(6), LAUNCHER):
            job.say(rank, f"{rank}\n")
        assert job.shown(ranks=[1, 4, 5]) == [(1, "1"), (4, "4"), (5, "5")]
        assert job.shown(ranks=[]) == []

    def test_nodes_by_name_and_instance_id_with_their_launchers_words(self, job: Job) -> None:
        for rank in (*range(6), LAUNCHER):
            job.say(rank, f"{rank}\n")
        assert job.shown(nodes=["node000000"], ids=[10]) == [
            (0, "0"), (1, "1"), (4, "4"), (5, "5"), (None, "-1"),
        ]  # fmt: skip
        assert job.shown(nodes=["node000001"], ranks=[0, 3]) == [(3, "3")]

    def test_what_all_ranks_lack_is_told_to_everybody(self, job: Job) -> None:
        job.say(0, "mine\n")
        job.stream.write(LAUNCHER, 0, NOTICE, b"left out")
        job.stream.write(5, 2, NOTICE, b"left out of rank 5")
        assert job.shown(ranks=[0]) == [(0, "mine"), (None, "left out")]
        assert job.shown(ranks=[0, 5]) == [(0, "mine"), (None, "left out"), (5, "left out of rank 5")]

    def test_the_last_lines_whatever_pieces_they_came_in(self, job: Job) -> None:
        for text in ("a\nb\nc\nd", "d\n", "e\nf", "f\n"):
            job.say(0, text)
            job.say(1, "other\n")
        assert job.shown(ranks=[0], tail=3) == [(0, "dd"), (0, "e"), (0, "ff")]
        assert job.shown(tail=2) == [(0, "ff"), (1, "other")]
        assert job.shown(tail=0) == []
        assert len(job.shown(tail=1000)) == 10

    def test_a_line_that_was_cut_ends_where_that_is_said(self, job: Job) -> None:
        job.say(0, "first\ncut")
        job.stream.write(0, 0, NOTICE, b"left out 5 B")
        job.say(0, "next\n")
        printed = [(0, "first"), (0, "cut"), (0, "left out 5 B"), (0, "next")]
        assert job.shown() == printed
        assert job.shown(tail=10) == printed
        assert job.shown(tail=3) == printed[1:]
        assert job.shown(since=60) == printed

    def test_the_last_lines_however_many_a_piece_has(self, job: Job) -> None:
        printed = []
        for number, count in enumerate([3, 1, 5, 0, 2, 1, 4, 1]):
            texts = [f"{number} {place}" for place in range(count)]
            job.say(number % 2, "".join(f"{text}\n" for text in texts) or "begun ")
            printed += [(number % 2, text) for text in texts]
        for tail in range(1, 6):
            assert [text.removeprefix("begun ") for _, text in job.shown(tail=tail)] == [
                text.removeprefix("begun ") for _, text in printed[-tail:]
            ]

    def test_a_last_line_without_an_end_is_one_of_the_last(self, job: Job) -> None:
        job.say(0, "a\nb\nc\nunfinished")
        assert job.shown(tail=2) == [(0, "c"), (0, "unfinished")]
        assert job.shown() == [(0, "a"), (0, "b"), (0, "c"), (0, "unfinished")]

    def test_states_of_a_progress_bar_are_no_lines_of_the_tail(self, job: Job) -> None:
        job.say(0, "one\n\r10%\r20%\r30%\r100%\ntwo\n\r10%\r20%\r")
        assert job.shown(tail=3) == [(0, "100%"), (0, "two"), (0, "20%")]

    def test_the_last_while(self, job: Job) -> None:
        now = time.time()
        job.say(0, "old\nbegun ", at=now - 3600)
        job.say(0, "and ended\n", at=now - 60)
        job.say(1, "new\nha", at=now - 50)
        job.say(1, "lf", at=now - 40)
        assert job.shown(since=600) == [(0, "begun and ended"), (1, "new"), (1, "half")]
        assert job.shown(since=55) == [(1, "new"), (1, "half")]
        assert job.shown(since=600, tail=2) == [(1, "new"), (1, "half")]
        assert job.shown(since=7200)[0] == (0, "old")

    def test_a_line_without_an_end_is_as_old_as_its_last_piece(self, job: Job) -> None:
        now = time.time()
        job.say(0, "old\nhalf", at=now - 3600)
        job.say(1, "begun ", at=now - 3600)
        job.say(1, "continued", at=now - 60)
        assert job.shown(since=600) == [(1, "begun continued")]
        assert job.shown(since=30) == []


class TestManySegments:
    @pytest.fixture
    def long(self, _home: None) -> Job:
        with pytest.MonkeyPatch.context() as patch:
            job = Job(patch, segment=200)
        for number in range(60):
            job.say(number % 3, f"{number}\n")
        return job

    def test_the_tail_is_read_from_as_few_as_hold_it(self, long: Job) -> None:
        first = follow.Choice({"tail": 5}, NODES, 0.0).first_segment(long.folder.path)
        there = sorted(Path(long.folder.path).glob("stream.*.log"))
        assert len(there) == 8
        assert first >= int(there[-2].name.split(".")[1])
        assert long.shown(tail=5) == [(number % 3, str(number)) for number in range(55, 60)]
        assert long.shown(tail=5, ranks=[1]) == [(1, str(number)) for number in range(46, 60, 3)]

    def test_more_than_there_is_says_what_went(self, long: Job) -> None:
        (who, words), *rest = long.shown(tail=1000)
        assert who is None
        assert words.startswith("missed ")
        assert rest == [(n % 3, str(n)) for n in range(60 - len(rest), 60)]
        assert long.shown(since=1000)[0] == (who, words)

    def test_segments_older_than_the_while_are_not_read(self, long: Job) -> None:
        import os

        there = sorted(Path(long.folder.path).glob("stream.*.log"))
        for path in there[:-1]:
            os.utime(path, (1, 1))
        number = int(there[-1].name.split(".")[1])
        assert follow.Choice({"since": 60}, NODES, time.time()).first_segment(long.folder.path) == number


class Follower:
    """Somebody who follows while the test goes on."""

    def __init__(self, job: Job, read: Callable[[bytes], object] = lambda _: None, **wish: Any) -> None:
        self.events: list[Any] = []
        self.quiet = 0
        reader = Reader(self.events.append)

        def take(data: bytes) -> None:
            read(data)
            reader.feed(data)

        def run() -> None:
            follow.follow(job.folder, cast("LogQuery", wish), take)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    @property
    def lines(self) -> list[tuple[int | None, str]]:
        return [(event.rank, event.data.decode()) for event in self.events if isinstance(event, LogLine)]

    def until(self, true: Callable[[], object]) -> None:
        end = time.monotonic() + 10
        while not true():
            assert time.monotonic() < end, self.events
            time.sleep(0.01)


class TestGoingOn:
    def test_from_the_start_to_the_end_which_comes_last_and_at_once(self, job: Job) -> None:
        job.say(0, "one\n")
        follower = Follower(job)
        follower.until(lambda: follower.lines)
        job.say(1, "two\nhalf")
        follower.until(lambda: len(follower.lines) == 2)
        job.say(1, "last\n")
        before = time.monotonic()
        job.write_state("SUCCEEDED")
        follower.thread.join(5)
        assert time.monotonic() - before < 1
        assert follower.lines == [(0, "one"), (1, "two"), (1, "halflast")]
        changes = [event.state.state for event in follower.events if isinstance(event, StateChange)]
        assert changes == ["RUNNING", "SUCCEEDED"]
        assert isinstance(follower.events[-1], StateChange)

    def test_a_job_that_waits_is_followed_into_its_start(self, _home: None, job: Job) -> None:
        for segment in Path(job.folder.path).glob("stream.*"):
            segment.unlink()
        job.write_state("QUEUED")
        followers = [Follower(job), Follower(job, tail=5), Follower(job, since=60.0, ranks=[0])]
        for one in followers:
            one.until(one.events.copy)
        job.write_state("RUNNING")
        job.stream = StreamWriter(job.folder.path, 1 << 20)
        job.say(0, "one\n")
        job.write_state("SUCCEEDED")
        for one in followers:
            one.thread.join(5)
            assert one.lines == [(0, "one")]

    def test_from_the_tail_on_with_a_line_that_was_half_there(self, job: Job) -> None:
        job.say(0, "a\nb\nhalf ")
        follower = Follower(job, tail=1)
        follower.until(lambda: follower.lines)
        job.say(0, "whole\n")
        follower.until(lambda: len(follower.lines) == 2)
        job.write_state("SUCCEEDED")
        follower.thread.join(5)
        assert follower.lines == [(0, "b"), (0, "half whole")]

    def test_quiet_is_told_soon(self, job: Job) -> None:
        job.say(0, "a\n")
        follower = Follower(job)
        follower.until(lambda: follower.lines)
        begun = time.monotonic()
        follower.until(lambda: type(follower.events[-1]).__name__ == "Quiet")
        assert time.monotonic() - begun < 2
        job.write_state("SUCCEEDED")
        follower.thread.join(5)

    def test_one_that_takes_nothing_holds_up_nobody(self, job: Job) -> None:
        free = threading.Event()
        stuck = Follower(job, read=lambda _: free.wait(20))
        other = Follower(job)
        for number in range(200):
            job.say(0, f"{number}\n")
        other.until(lambda: len(other.lines) == 200)
        assert stuck.lines == []
        job.write_state("SUCCEEDED")
        other.thread.join(5)
        free.set()
        stuck.thread.join(5)
        assert stuck.lines == other.lines

    def test_many_records_are_sent_in_one_piece(self, job: Job) -> None:
        for number in range(1000):
            job.say(0, f"{number}\n")
        job.write_state("SUCCEEDED")
        sent: list[bytes] = []
        follow.follow(job.folder, {}, sent.append)
        assert len(sent) < 5
        kinds = [kind for kind, _ in frames.Decoder().feed(b"".join(sent))]
        assert kinds == [frames.JOB, *[frames.OUT] * 1000, frames.STATE]

    def test_a_job_that_there_is_not(self) -> None:
        with pytest.raises(FileNotFoundError):
            follow.follow(job_dir.Folder("none"), {}, lambda _: None)
