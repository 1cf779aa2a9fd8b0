"""A job's samples from its head's files to the operator: each change once, and what a screen needs."""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.client.sample_stream import Watched, watch_samples
from launch.errors import GiveUpError, NodeUnreachable, NoSuchJob
from launch.remote.base import frames
from launch.remote.base.job_dir import first_state
from launch.remote.base.processes import identity
from launch.remote.sample.sample_records import History, Live
from tests.launch.client.test_wait import BROKE, Head
from tests.launch.remote.sample_records import sample_plan
from tests.launch.standin import REMOTE, LocalHost
from tests.launch.whole_jobs.test_losing_the_head import JOB

LIVE: Live = {
    "time": 1000.0,
    "attempt": 0,
    "nodes": {},
    "ranks": {
        "0": {
            "time": 1000.0,
            "node": "node000000",
            "cpu_permille": 900,
            "memory": 10,
            "silent_since": 999.0,
            "metrics": {"step": 1.0},
            "ended": False,
        }
    },
}
SERIES: Any = {"cpu": [0.123456] * 90, "gpu": [None, 0.5], "memory": [1e9] * 90, "metric:step": [1.0] * 90}
HISTORY: History = {"start": 1000.0, "interval_s": 8.0, "nodes": {"node000000": SERIES}, "attempts": []}


class Records:
    """A job's folder on a head that is this machine."""

    def __init__(self, home: Path) -> None:
        self.folder = home / ".ranklift/jobs/t-1"
        self.folder.mkdir(parents=True)
        (home / ".ranklift/remote").mkdir()
        (home / ".ranklift/remote/hash").symlink_to(REMOTE)
        env = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        self.head = LocalHost("node000000", home, env)
        self.write("job.json", dict(sample_plan("t-1")))
        self.state("RUNNING")

    def write(self, name: str, record: object) -> None:
        (self.folder / "new").write_text(json.dumps(record))
        (self.folder / "new").replace(self.folder / name)

    def state(self, state: str) -> None:
        started = first_state("t-1", sample_plan("t-1"), 1000.0, identity(os.getpid()))
        self.write("state.json", {**started, "state": state})


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


def watched(records: Records, steps: Iterator[Callable[[], object]]) -> tuple[list[Watched], int]:
    """The answers, with a step taken after each, and the number of signs of life."""
    answers: list[Watched] = []
    signs: list[float] = []

    def on_answer(answer: Watched) -> None:
        answers.append(answer)
        next(steps, lambda: None)()

    watch_samples("t-1", records.head, on_answer, lambda: signs.append(time.monotonic()), remote="hash")
    return answers, len(signs)


def test_each_change_is_sent_until_the_job_has_ended(records: Records) -> None:
    newer: Live = {**LIVE, "time": 1001.0}

    def steps() -> Iterator[Callable[[], object]]:
        yield lambda: records.write("samples.json", LIVE)
        yield lambda: records.write("history.json", HISTORY)
        yield lambda: records.write("samples.json", newer)
        yield lambda: records.state("SUCCEEDED")

    answers, _ = watched(records, steps())
    seen = [(one.samples.state.state, one.samples.live and one.samples.live["time"]) for one in answers]
    assert seen == [
        *(("RUNNING", None), ("RUNNING", 1000.0), ("RUNNING", 1000.0), ("RUNNING", 1001.0)),
        ("SUCCEEDED", 1001.0),
    ]
    histories = [one.samples.history for one in answers]
    assert histories[:2] == [None, None]
    assert histories[2] is not None
    assert histories[3] is histories[2] is histories[4], "it is sent once"
    assert [[state.job for state in one.jobs] for one in answers[:1]] == [["t-1"]]


def test_of_a_history_the_screen_gets_what_it_has_room_for(records: Records) -> None:
    records.write("history.json", HISTORY)
    ((answer,), _) = _once(records)
    assert answer.samples.history is not None
    assert answer.samples.history["nodes"]["node000000"] == {"cpu": [0.123] * 60, "gpu": [None, 0.5]}


def _once(records: Records) -> tuple[list[Watched], int]:
    records.state("SUCCEEDED")
    return watched(records, iter(()))


def test_signs_of_life_come_while_nothing_changes(records: Records) -> None:
    began = time.monotonic()

    class Over(Exception):
        pass

    signs: list[float] = []

    def on_sign() -> None:
        signs.append(time.monotonic())
        if time.monotonic() - began > 2.5:
            raise Over

    with pytest.raises(Over):
        watch_samples("t-1", records.head, lambda _: None, on_sign, remote="hash")
    assert len(signs) >= 3


def test_a_job_that_the_head_does_not_have_is_an_error(records: Records) -> None:
    shutil.rmtree(records.folder)
    with pytest.raises(NoSuchJob, match="no job t-1 on this head"):
        watched(records, iter(()))


def test_a_torn_file_of_samples_is_none(records: Records) -> None:
    (records.folder / "samples.json").write_text('{"time": 3')
    ((answer,), _) = _once(records)
    assert answer.samples.live is None


def test_a_broken_connection_is_raised() -> None:
    with pytest.raises(NodeUnreachable):
        watch_samples(JOB, WatchedHead((b"", BROKE)), lambda _: None, lambda: None, remote="hash")


@pytest.mark.parametrize(
    "payload",
    [
        b"not compressed",
        zlib.compress(b"not JSON"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"report": {}, "is_same_history": false, "jobs": []}'),
        zlib.compress(bytes(100 << 20)),
    ],
    ids=["garbage", "no JSON", "a list", "without a state", "100 MiB of zeros"],
)
def test_an_answer_that_cannot_be_decoded_is_an_error(payload: bytes) -> None:
    head = WatchedHead((frames.frame(frames.SAMPLES, payload), 0))
    with pytest.raises(GiveUpError, match=r"node000000: its (samples|answer)"):
        watch_samples(JOB, head, lambda _: None, lambda: None, remote="hash")


class WatchedHead(Head):
    """Gives bytes, and how the connection ends."""

    def stream(self, argv: Any, on_stdout: Callable[[bytes], object], **_: Any) -> Any:
        assert list(argv)[-2:] == ["watch-samples", JOB]
        return super().stream([*argv[:-2], "wait", JOB], on_stdout)
