"""The runners of a launch, as the supervisor knows them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from launch.remote.base import frames, job_dir
from launch.remote.head.queue import Turn
from launch.remote.head.runners.channel import GREETED, Link
from launch.remote.head.runners.runner_pool import Crew, Order
from launch.remote.log.writer import StreamWriter
from tests.launch.remote.sample_records import sample_plan

PLAN = sample_plan(nodes=[{"name": "node000000", "ranks": [{"rank": 0}]}])


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(Order(job_dir.Folder("none"), PLAN, Turn({}, 0), StreamWriter("")))
    yield made
    made.close()


@pytest.fixture
def runner(crew: Crew) -> Iterator[socket.socket]:
    """A runner's end of its channel, over which nothing has come for too long."""
    ours, theirs = socket.socketpair()
    link = Link(0, connection=ours)
    link.stage = GREETED
    link.heard = time.monotonic() - frames.NODE_SILENT - 1
    crew.add(link)
    with theirs:
        yield theirs


def test_a_runner_that_says_nothing_for_too_long_has_fallen_silent(crew: Crew, runner: socket.socket) -> None:
    assert crew.fallen_silent() == crew.links


def test_one_whose_words_wait_for_a_head_that_was_held_up_has_not(crew: Crew, runner: socket.socket) -> None:
    runner.sendall(frames.frame(frames.BEAT))
    assert crew.fallen_silent() == []
