"""The runners of a launch: which are silent, what all are sent, and when they may leave."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from launch.remote.base import frames, timing
from launch.remote.head.runners.channel import DONE, GOING, READY, Channel
from launch.remote.head.runners.runner_pool import RunnerPool
from tests.launch.remote.sample_records import sample_plan

NODES = [{"name": f"node{number:06}", "ranks": [{"rank": number}]} for number in range(2)]


@pytest.fixture
def pool() -> Iterator[RunnerPool]:
    made = RunnerPool(sample_plan(nodes=NODES), slots={}, port=0, restarts=0)
    yield made
    made.close()


@pytest.fixture
def runners(pool: RunnerPool) -> Iterator[list[socket.socket]]:
    """The runners' ends of two channels, over which nothing has come yet."""
    ends = []
    for rank in range(2):
        ours, theirs = socket.socketpair()
        pool.add_connection(rank, rank, ours)
        theirs.settimeout(5)
        ends.append(theirs)
    yield ends
    for end in ends:
        end.close()


def received(runner: socket.socket) -> list[tuple[bytes, bytes]]:
    runner.setblocking(False)
    try:
        return frames.Decoder().feed(runner.recv(1 << 16))
    except BlockingIOError:
        return []


def long_ago(channel: Channel) -> None:
    channel.last_heard = time.monotonic() - timing.NODE_SILENT_S - 1


def test_a_runner_that_sends_nothing_for_too_long_is_silent(
    pool: RunnerPool, runners: list[socket.socket]
) -> None:
    long_ago(pool.channels[1])
    assert pool.silent_channels(time.monotonic()) == [pool.channels[1]]


def test_one_whose_bytes_wait_for_a_head_that_was_held_up_is_not(
    pool: RunnerPool, runners: list[socket.socket]
) -> None:
    long_ago(pool.channels[1])
    runners[1].sendall(frames.frame(frames.BEAT))
    assert pool.silent_channels(time.monotonic()) == []


def test_go_reaches_every_runner_with_its_own_variables(
    pool: RunnerPool, runners: list[socket.socket]
) -> None:
    pool.channels[0].stage = pool.channels[1].stage = READY
    pool.send_go({1: {"TF_CONFIG": "{}"}})
    assert [channel.stage for channel in pool.channels] == [GOING, GOING]
    sent = [[(kind, frames.unpack(payload)) for kind, payload in received(runner)] for runner in runners]
    assert sent == [[(frames.GO, {})], [(frames.GO, {"1": {"TF_CONFIG": "{}"}})]]


def test_stop_reaches_every_open_runner_and_no_further_one_is_started(
    pool: RunnerPool, runners: list[socket.socket]
) -> None:
    pool.to_start = [0, 1]
    pool.drop(pool.channels[0])
    assert pool.send_stop(1.5)
    assert received(runners[1]) == [(frames.STOP, frames.pack({"grace_ms": 1500}))]
    assert pool.to_start == []
    pool.drop(pool.channels[1])
    assert not pool.send_stop(1.0), "nobody is left"


def test_runners_may_leave_once_all_have_finished(pool: RunnerPool, runners: list[socket.socket]) -> None:
    pool.channels[0].stage = DONE
    pool.release_finished()
    assert len(pool.open_channels) == 2
    pool.channels[1].stage = DONE
    pool.release_finished()
    assert pool.open_channels == []
    assert [runner.recv(1) for runner in runners] == [b"", b""]


def test_nodes_whose_runner_was_open_with_ranks_left_are_known_at_the_end(
    pool: RunnerPool, runners: list[socket.socket]
) -> None:
    pool.channels[0].ended.add(0)
    assert pool.close() == {1}
