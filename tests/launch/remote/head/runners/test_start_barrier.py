"""Before the first rank: all or none, and everything that stands against a start in one error."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from launch.remote.head import outcome
from launch.remote.head.runners import start_barrier
from launch.remote.head.runners.start_barrier import Muster
from launch.remote.log.writer import LAUNCHER, StreamWriter
from tests.launch.remote.sample_records import sample_plan

if TYPE_CHECKING:
    from launch.remote.base.records import Plan

LIMIT_S = 60.0


def plan(*tasks: str) -> Plan:
    """Three nodes with two ranks each; ``tasks`` are the TensorFlow types of the ranks."""
    kinds = tasks or ("",) * 6
    nodes = [
        {
            "name": f"node{number:06}",
            "private_ip": f"10.0.0.{4 + number}",
            "ranks": [{"rank": rank, "task": kinds[rank]} for rank in (2 * number, 2 * number + 1)],
        }
        for number in range(3)
    ]
    return sample_plan(nodes=nodes, start_limit_s=LIMIT_S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until a test moves it."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(start_barrier, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def mustered() -> Muster:
    return Muster(plan())


def test_slots_are_held_once_the_last_runner_holds_its_own(mustered: Muster) -> None:
    assert [mustered.holds(ranks) for ranks in ([0, 1], [4, 5], [2, 3])] == [False, False, True]
    assert not mustered.holds([2, 3]), "told once"


def test_no_rank_may_start_before_every_node_is_ready(mustered: Muster) -> None:
    mustered.ready([0, 1], [])
    mustered.ready([4, 5], [])
    assert (mustered.is_complete, mustered.pending) == (False, [1])
    mustered.ready([2, 3], [])
    assert (mustered.is_complete, mustered.pending) == (True, [])


def test_one_unfit_node_keeps_all_from_starting(mustered: Muster) -> None:
    mustered.unfit(1, ["there is no torch"])
    for ranks in ([0, 1], [2, 3], [4, 5]):
        mustered.ready(ranks, [])
    assert mustered.is_known
    assert not mustered.is_complete


def test_an_unfit_node_ends_the_start_once_the_others_have_answered(
    mustered: Muster, clock: SimpleNamespace
) -> None:
    assert not mustered.is_hopeless
    mustered.unfit(1, ["there is no torch"])
    mustered.ready([0, 1], [])
    assert not mustered.is_hopeless, "another may lack something too"
    mustered.unfit(2, ["does not answer"])
    assert mustered.is_hopeless


def test_or_once_they_have_had_their_time_to(mustered: Muster, clock: SimpleNamespace) -> None:
    mustered.unfit(1, ["there is no torch"])
    clock.now += 12.0
    assert not mustered.is_hopeless
    clock.now += 0.1
    assert mustered.is_hopeless


def test_all_that_is_amiss_is_one_reason_with_equal_nodes_folded(mustered: Muster, tmp_path: Path) -> None:
    mustered.unfit(2, ["there is no torch"])
    mustered.unfit(0, ["there is no torch"])
    mustered.unfit(1, ["slots 0-7 are taken", "/dev/shm has 64 MiB"])
    mustered.unfit(1, ["slots 0-7 are taken"])
    stream = StreamWriter(str(tmp_path))
    stream.write(LAUNCHER, 0, 2, b"setup: pip failed\n")
    found = mustered.outcome(stream)
    assert found.reason == (
        "no rank was started: node[000000,000002]: there is no torch; "
        "node000001: slots 0-7 are taken; /dev/shm has 64 MiB"
    )
    assert (found.state, found.exit_status, found.ran) == ("FAILED", outcome.LOST_RANK, False)
    assert found.failure is not None
    assert (found.failure["node"], found.failure["last_lines"]) == ("node000000", ["setup: pip failed"])


def test_a_node_that_takes_too_long_to_be_ready_is_overdue_unless_its_setup_line_runs(
    mustered: Muster,
) -> None:
    mustered.ready([0, 1], [])
    assert mustered.overdue(LIMIT_S, 0.0, at_work=[], started=[]) == []
    assert mustered.overdue(LIMIT_S + 1, 0.0, at_work=[2], started=[]) == [1]


def test_so_is_one_that_was_told_to_start_its_ranks_and_has_not(mustered: Muster) -> None:
    for ranks in ([0, 1], [2, 3], [4, 5]):
        mustered.ready(ranks, [])
    mustered.went = 500.0  # long after the runners were asked, for a setup line took its time
    started = [0, 1, 2, 4, 5]
    assert mustered.overdue(500.0 + LIMIT_S, 0.0, at_work=[], started=started) == []
    assert mustered.overdue(501.0 + LIMIT_S, 0.0, at_work=[], started=started) == [1]


def test_tasks_are_told_the_ports_that_every_node_found() -> None:
    mustered = Muster(plan("worker", "ps", "worker", "ps", "worker", "worker"))
    for ranks, ports in (([0, 1], [2222, 2223]), ([2, 3], [2230, 2222]), ([4, 5], [2222, 2224])):
        mustered.ready(ranks, ports)
    told = {rank: json.loads(variables["TF_CONFIG"]) for rank, variables in mustered.late().items()}
    assert told[3]["task"] == {"type": "ps", "index": 1}
    assert told[0]["cluster"] == {
        "worker": ["10.0.0.4:2222", "10.0.0.5:2230", "10.0.0.6:2222", "10.0.0.6:2224"],
        "ps": ["10.0.0.4:2223", "10.0.0.5:2222"],
    }
    assert sorted(told) == list(range(6))


def test_jobs_without_tasks_are_told_nothing_more(mustered: Muster) -> None:
    mustered.ready([0, 1], [])
    assert mustered.late() == {}
