"""Before the first rank: all or none, and every unfit node in one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launch.remote.head import outcome
from launch.remote.head.start_barrier import StartBarrier
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
def barrier() -> StartBarrier:
    return StartBarrier(plan(), begun=0.0)


def test_slots_are_held_once_the_last_runner_holds_its_own(barrier: StartBarrier) -> None:
    assert [barrier.on_held(ranks) for ranks in ([0, 1], [4, 5], [2, 3])] == [False, False, True]
    assert not barrier.on_held([2, 3]), "only once"


def test_no_rank_may_start_before_every_node_is_ready(barrier: StartBarrier) -> None:
    barrier.on_ready([0, 1], [])
    barrier.on_ready([4, 5], [])
    assert (barrier.is_complete, barrier.pending) == (False, [1])
    barrier.on_ready([2, 3], [])
    assert (barrier.is_complete, barrier.pending) == (True, [])


def test_one_unfit_node_keeps_all_from_starting(barrier: StartBarrier) -> None:
    barrier.reject(1, ["there is no torch"], now=1.0)
    for ranks in ([0, 1], [2, 3], [4, 5]):
        barrier.on_ready(ranks, [])
    assert barrier.has_rejected
    assert not barrier.is_complete


def test_an_unfit_node_ends_the_start_once_the_others_have_answered(barrier: StartBarrier) -> None:
    assert not barrier.is_hopeless(now=1.0)
    barrier.reject(1, ["there is no torch"], now=1.0)
    barrier.on_ready([0, 1], [])
    assert not barrier.is_hopeless(now=1.0), "another may lack something too"
    barrier.reject(2, ["does not answer"], now=2.0)
    assert barrier.is_hopeless(now=2.0)


def test_or_once_they_have_had_their_time_to(barrier: StartBarrier) -> None:
    barrier.reject(1, ["there is no torch"], now=100.0)
    assert not barrier.is_hopeless(now=112.0)
    assert barrier.is_hopeless(now=112.1)


def test_all_unfit_nodes_are_one_reason_with_equal_ones_folded(barrier: StartBarrier, tmp_path: Path) -> None:
    barrier.reject(2, ["there is no torch"], now=1.0)
    barrier.reject(0, ["there is no torch"], now=1.0)
    barrier.reject(1, ["slots 0-7 are taken", "/dev/shm has 64 MiB"], now=1.0)
    barrier.reject(1, ["slots 0-7 are taken"], now=1.0)
    stream = StreamWriter(str(tmp_path))
    stream.write(LAUNCHER, 0, 2, b"setup: pip failed\n")
    found = barrier.outcome(stream)
    assert found.reason == (
        "no rank was started: node[000000,000002]: there is no torch; "
        "node000001: slots 0-7 are taken; /dev/shm has 64 MiB"
    )
    assert (found.state, found.exit_status, found.ran) == ("FAILED", outcome.LOST_RANK, False)
    assert found.failure is not None
    assert (found.failure["node"], found.failure["last_lines"]) == ("node000000", ["setup: pip failed"])


def test_a_node_that_takes_too_long_to_be_ready_is_overdue_unless_its_setup_line_runs(
    barrier: StartBarrier,
) -> None:
    barrier.on_ready([0, 1], [])
    assert barrier.overdue(LIMIT_S, at_work=[], started=[]) == []
    assert barrier.overdue(LIMIT_S + 1, at_work=[2], started=[]) == [1]


def test_so_is_one_that_was_let_start_its_ranks_and_has_not(barrier: StartBarrier) -> None:
    for ranks in ([0, 1], [2, 3], [4, 5]):
        barrier.on_ready(ranks, [])
    barrier.open(now=500.0)  # long after the launch began, for a setup line took its time
    started = [0, 1, 2, 4, 5]
    assert barrier.overdue(500.0 + LIMIT_S, at_work=[], started=started) == []
    assert barrier.overdue(501.0 + LIMIT_S, at_work=[], started=started) == [1]


def test_tasks_get_the_ports_that_every_node_found() -> None:
    barrier = StartBarrier(plan("worker", "ps", "worker", "ps", "worker", "worker"), begun=0.0)
    for ranks, ports in (([0, 1], [2222, 2223]), ([2, 3], [2230, 2222]), ([4, 5], [2222, 2224])):
        barrier.on_ready(ranks, ports)
    given = {rank: json.loads(variables["TF_CONFIG"]) for rank, variables in barrier.open(now=1.0).items()}
    assert given[3]["task"] == {"type": "ps", "index": 1}
    assert given[0]["cluster"] == {
        "worker": ["10.0.0.4:2222", "10.0.0.5:2230", "10.0.0.6:2222", "10.0.0.6:2224"],
        "ps": ["10.0.0.4:2223", "10.0.0.5:2222"],
    }
    assert sorted(given) == list(range(6))


def test_jobs_without_tasks_get_no_further_variables(barrier: StartBarrier) -> None:
    barrier.on_ready([0, 1], [])
    assert barrier.open(now=1.0) == {}
    assert barrier.has_opened
