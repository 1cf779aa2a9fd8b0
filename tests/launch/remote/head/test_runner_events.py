"""What a runner's frames change: the ranks' states, the job's records, and what follows from them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from launch.remote.base import frames, job_dir
from launch.remote.head import queue
from launch.remote.head.job_state import JobState, LaunchOrder
from launch.remote.head.node_loss import NodeLoss
from launch.remote.head.rank_states import RankStates
from launch.remote.head.runner_events import RunnerEvents
from launch.remote.head.runners.channel import DONE, GOING, GREETED, READY, STARTED, Channel
from launch.remote.head.runners.runner_pool import RunnerPool
from launch.remote.head.shutdown import Shutdown, Stop
from launch.remote.head.start_barrier import StartBarrier
from launch.remote.log.writer import StreamWriter
from tests.launch.remote.sample_records import sample_plan

if TYPE_CHECKING:
    from launch.remote.base.records import Plan

JOB = "t-20260301-090507-0f3a"


def plan(services: tuple[int, ...] = ()) -> Plan:
    """One node with two ranks."""
    node = {"name": "node000000", "private_ip": "10.0.0.4", "reserve": 2, "slots": 2}
    ranks = [{"rank": rank, "task": ""} for rank in (0, 1)]
    return sample_plan(JOB, nodes=[{**node, "ranks": ranks}], services=list(services))


class Launch:
    """A launch with the channel of its one runner, which is greeted."""

    def __init__(self, services: tuple[int, ...] = ()) -> None:
        made = plan(services)
        self.folder = job_dir.Folder(JOB)
        self.folder.create(made)
        queue.enter(made)
        self.stream = StreamWriter(self.folder.path)
        order = LaunchOrder(
            self.folder, made, {"node000000": [0, 1]}, 6105, self.stream, restarts=0, deadline=None
        )
        self.pool = RunnerPool(made, order.slots, order.port, order.restarts)
        self.ranks = RankStates(made["nodes"])
        self.barrier = StartBarrier(made, begun=0.0)
        self.shutdown = Shutdown(3.0)
        losses = NodeLoss(made, self.folder, self.ranks, self.barrier, self.shutdown)
        state = JobState(self.folder, made)
        self.events = RunnerEvents(order, state, self.pool, self.ranks, self.barrier, self.shutdown, losses)
        ours, self.runner = socket.socketpair()
        self.channel = Channel(0, [0, 1], connection=ours)
        self.channel.stage = GREETED

    def on(self, kind: bytes, **fields: Any) -> Stop | None:
        return self.events.on_frame(self.channel, kind, frames.pack(fields), now=1.0)

    def on_exit(self, rank: int, status: int = 0, **fields: Any) -> Stop | None:
        given = {"rank": rank, "status": status, "signal": 0, "stopped": 0, "time_us": 1000, **fields}
        return self.on(frames.EXIT, **given)

    def records(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.folder.file(name)).read_text().splitlines()]

    def close(self) -> None:
        self.channel.close()
        self.runner.close()
        self.pool.close()
        self.stream.close()


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Launch()
    yield made
    made.close()


@pytest.fixture
def with_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    """A launch whose rank 1 is a parameter server; its ranks run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Launch(services=(1,))
    made.channel.stage = STARTED
    yield made
    made.close()


def test_the_slots_are_held_and_the_ranks_run_as_soon_as_the_last_runner_says_so(launch: Launch) -> None:
    assert launch.on(frames.HELD) is None
    assert launch.folder.state()["state"] == "STARTING"
    assert launch.on(frames.READY, ports=[], network="") is None
    assert (launch.barrier.is_complete, launch.channel.stage) == (True, READY)
    launch.channel.stage = GOING
    assert launch.on(frames.STARTED, pids=[11, 12], time_us=1000) is None
    state = launch.folder.state()
    assert (state["state"], state["port"], launch.ranks.running) == ("RUNNING", 6105, [0, 1])


def test_refused_slots_end_the_launch_without_an_outcome(launch: Launch) -> None:
    assert launch.on(frames.BUSY, taken=[[0, "other"]]) == Stop()
    assert [list(slot) for slot in launch.events.taken["node000000"]] == [[0, "other"]]


def test_an_unfit_node_is_rejected(launch: Launch) -> None:
    assert launch.on(frames.FAILED, reasons=["there is no torch"]) is None
    assert (launch.barrier.has_rejected, launch.channel.stage) == (True, DONE)


def test_an_end_is_recorded_and_a_failure_counts_unless_the_rank_was_stopped(launch: Launch) -> None:
    launch.channel.stage = STARTED
    assert launch.on_exit(0, 143, signal=15, stopped=1) is None
    assert launch.shutdown.failures.first is None
    assert launch.on_exit(1, 3) is None
    failed = launch.shutdown.failures.first
    assert failed is not None
    assert failed.reason == "rank 1 on node000000 ended with exit status 3"
    ends = [(end["rank"], end["status"], end["signal"]) for end in launch.records("exits.jsonl")]
    assert ends == [(0, 143, 15), (1, 3, None)]
    assert [event["event"] for event in launch.records("events.jsonl")] == ["exit", "exit"]
    assert (launch.ranks.all_ended, launch.channel.unended) == (True, [])


def test_the_job_succeeds_when_all_ranks_but_the_parameter_servers_have(with_services: Launch) -> None:
    decision = with_services.on_exit(0)
    assert decision is not None
    assert decision.outcome is not None
    assert (decision.outcome.state, with_services.ranks.ended) == ("SUCCEEDED", {0: 0})


def test_a_second_end_of_a_rank_breaks_the_protocol(launch: Launch) -> None:
    launch.channel.stage = STARTED
    launch.on_exit(0)
    with pytest.raises(frames.ProtocolError, match="the end of rank 0"):
        launch.on_exit(0)


@pytest.mark.parametrize("kind", [frames.EXIT, frames.STARTED])
def test_so_does_a_frame_before_its_time(launch: Launch, kind: bytes) -> None:
    fields = {"pids": [1], "time_us": 1000} if kind == frames.STARTED else None
    with pytest.raises(frames.ProtocolError, match="at the wrong time"):
        launch.on(kind, **fields) if fields else launch.on_exit(0)


def test_so_does_output_of_another_runners_rank(launch: Launch) -> None:
    payload = frames.OUTPUT.pack(7, 1) + b"text\n"
    with pytest.raises(frames.ProtocolError, match="for rank 7, which is another runner's"):
        launch.events.on_frame(launch.channel, frames.OUT, payload, now=1.0)


def test_output_goes_to_the_stream(launch: Launch) -> None:
    payload = frames.OUTPUT.pack(1, 1) + b"text\n"
    assert launch.events.on_frame(launch.channel, frames.OUT, payload, now=1.0) is None
    assert launch.stream.tail(1, 0) == b"text\n"


def test_processes_that_do_not_die_are_named(launch: Launch) -> None:
    launch.channel.stage = STARTED
    assert launch.on(frames.DONE, left=[4711], ended=[]) is None
    assert b"node000000: processes [4711] survived SIGKILL" in launch.stream.tail(-1, 0)
    assert launch.channel.is_done


def test_samples_are_kept_from_runners_whose_ranks_run_and_of_their_own_ranks_alone(launch: Launch) -> None:
    one = {"rank": 1, "cpu_permille": 5, "memory": 6, "silent_ms": 7, "metrics": {"step": "8"}, "lines": {}}
    with pytest.raises(frames.ProtocolError, match="at the wrong time"):
        launch.on(frames.SAMPLE, node=[], ranks=[one])
    launch.channel.stage = STARTED
    assert launch.on(frames.SAMPLE, node=[], ranks=[one]) is None
    with pytest.raises(frames.ProtocolError, match="a sample of rank 7, which is another runner's"):
        launch.on(frames.SAMPLE, node=[], ranks=[{**one, "rank": 7}])
    wrongs = (
        {"metrics": {str(name): "1" for name in range(40)}},
        {"metrics": {"a": "1" * 65}},
        {"lines": {"a": "x" * 401}},
        {"lines": {"a": 5}},
    )
    for wrong in wrongs:
        with pytest.raises(frames.ProtocolError, match="a frame of type b'M'"):
            launch.on(frames.SAMPLE, node=[], ranks=[{**one, **wrong}])
    launch.on_exit(1)
    launch.events.close_samples()
    kept = json.loads(Path(launch.folder.file("samples.json")).read_text())
    assert kept["ranks"]["1"]["metrics"] == {"step": 8}
    assert kept["ranks"]["1"]["ended"] is True
