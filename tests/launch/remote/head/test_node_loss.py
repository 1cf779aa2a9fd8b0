"""Nodes that are unfit, lost or taken by Azure: which of them end a job, and when it goes on without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launch.remote.base import job_dir
from launch.remote.head.node_loss import GoOn, NodeLoss
from launch.remote.head.outcome import LOST_RANK
from launch.remote.head.rank_states import RankStates
from launch.remote.head.shutdown import Shutdown, Stop
from launch.remote.head.start_barrier import StartBarrier
from launch.remote.log.writer import LAUNCHER, StreamWriter
from tests.launch.remote.sample_records import sample_plan

if TYPE_CHECKING:
    from launch.remote.base.payloads import EvictionNotice

GRACE_S = 3.0
WHY = "its runner was killed, or the node is gone"


class Launch:
    """Four nodes with two ranks each; the first is the head."""

    def __init__(self, min_nodes: int | None = None, kind: str = "pytorch", runs: bool = True) -> None:
        nodes = [
            {
                "name": f"node{number:06}",
                "private_ip": f"10.0.0.{number + 4}",
                "ranks": [{"rank": rank, "task": ""} for rank in (2 * number, 2 * number + 1)],
            }
            for number in range(4)
        ]
        plan = sample_plan(nodes=nodes, kind=kind, min_nodes=min_nodes, grace_s=GRACE_S)
        self.folder = job_dir.Folder("t-1")
        Path(self.folder.path).mkdir(parents=True)
        self.ranks = RankStates(plan["nodes"])
        self.barrier = StartBarrier(plan, begun=0.0)
        if runs:
            self.barrier.open(now=1.0)
            self.ranks.started.update(range(8))
        self.shutdown = Shutdown(GRACE_S)
        self.losses = NodeLoss(plan, self.folder, self.ranks, self.barrier, self.shutdown)

    @property
    def events(self) -> list[tuple[str, str, str]]:
        path = Path(self.folder.file("events.jsonl"))
        found = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
        return [(one["event"], one["node"], one["reason"]) for one in found]


def notice(left_s: float, kind: str = "Preempt", at_once: int = 1) -> EvictionNotice:
    return {"type": kind, "at": 1474309787, "left_ms": int(left_s * 1000), "at_once": at_once}


def outcome_of(decision: Stop | GoOn | None) -> tuple[str, int, str]:
    assert isinstance(decision, Stop)
    assert decision.outcome is not None
    return decision.outcome.state, decision.outcome.exit_status, decision.outcome.reason


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


class TestBeforeTheFirstRank:
    def test_a_lost_or_unfit_node_is_one_that_keeps_all_from_starting(self) -> None:
        launch = Launch(runs=False)
        assert launch.losses.on_unfit(1, ["there is no torch"], now=1.0) is None
        assert launch.losses.on_lost(2, WHY, now=1.0) is None
        assert launch.barrier.pending == [0, 3]
        assert launch.events == [], "no rank of it was lost"

    def test_nodes_count_no_longer_once_the_launch_ends(self) -> None:
        launch = Launch(runs=False)
        launch.shutdown.begin(Stop(), now=1.0)
        assert launch.losses.on_unfit(1, ["there is no torch"], now=1.0) is None
        assert not launch.barrier.has_rejected

    def test_a_node_that_finds_itself_unfit_after_it_ends_the_job(self) -> None:
        decision = Launch().losses.on_unfit(1, ["no /bin/sh", "no room"], now=2.0)
        assert outcome_of(decision) == ("FAILED", LOST_RANK, "node000001: no /bin/sh; no room")


class TestALostNode:
    def test_it_ends_the_job_and_its_unended_ranks_are_named(self) -> None:
        launch = Launch()
        launch.ranks.ended[2] = 0
        decision = launch.losses.on_lost(1, WHY, now=2.0)
        assert outcome_of(decision) == ("FAILED", LOST_RANK, f"node000001 (rank 3) is lost: {WHY}")
        assert launch.events == [("lost-node", "node000001", WHY)]

    def test_each_node_is_recorded_once_although_each_rank_has_a_runner(self) -> None:
        launch = Launch(kind="mpi")
        launch.losses.on_lost(1, WHY, now=2.0)
        launch.losses.on_lost(1, "again", now=2.1)
        assert len(launch.events) == 1

    def test_a_job_that_may_shrink_goes_on_with_the_others(self) -> None:
        launch = Launch(min_nodes=2)
        message = f"node000003 is lost: {WHY}; continuing on 3 nodes (needed: 2)"
        assert launch.losses.on_lost(3, WHY, now=2.0) == GoOn(3, message, grace=None)
        assert launch.ranks.running == [0, 1, 2, 3, 4, 5]
        assert launch.ranks.dispensed_nodes == ["node000003"]

    def test_but_not_below_its_fewest_nodes(self) -> None:
        launch = Launch(min_nodes=3)
        assert isinstance(launch.losses.on_lost(3, WHY, now=2.0), GoOn)
        assert isinstance(launch.losses.on_lost(2, WHY, now=3.0), Stop)

    def test_nor_without_the_head(self) -> None:
        assert isinstance(Launch(min_nodes=1).losses.on_lost(0, WHY, now=2.0), Stop)

    def test_nor_once_it_ends(self) -> None:
        launch = Launch(min_nodes=1)
        launch.shutdown.begin(Stop(), now=2.0)
        assert isinstance(launch.losses.on_lost(3, WHY, now=2.0), Stop)

    def test_it_is_swept_at_the_end(self) -> None:
        launch = Launch(min_nodes=1)
        launch.losses.on_lost(3, WHY, now=2.0)
        assert launch.losses.to_sweep(finished={1, 3}) == [3]


class TestANodeThatAzureTakes:
    WORDS = "will be taken by Azure at 2016-09-19 18:29:47 UTC (Preempt)"

    def test_its_notice_is_recorded_once_and_due_in_time_for_the_grace(self) -> None:
        launch = Launch()
        late = notice(100.0, at_once=0)
        launch.losses.on_notice(2, late, now=10.0)
        launch.losses.on_notice(2, late, now=10.1)
        assert launch.events == [("eviction", "node000002", self.WORDS)]
        assert launch.losses.due_nodes(now=70.0) == []
        assert launch.losses.due_nodes(now=80.2) == [2]

    def test_a_notice_that_is_taken_back_is_never_due(self) -> None:
        launch = Launch()
        launch.losses.on_notice(2, notice(100.0), now=10.0)
        launch.losses.on_notice(2, notice(0, kind=""), now=11.0)
        assert launch.losses.due_nodes(now=200.0) == []
        assert launch.events[1:] == [("eviction", "node000002", "will not be taken by Azure after all")]

    def test_before_the_first_rank_it_is_unfit(self) -> None:
        launch = Launch(runs=False)
        launch.losses.on_notice(2, notice(30.0), now=10.0)
        assert launch.losses.on_due(2, now=10.0) is None
        assert launch.barrier.has_rejected

    def test_it_ends_the_job_with_as_much_grace_as_there_is(self) -> None:
        launch = Launch()
        launch.losses.on_notice(2, notice(12.0), now=10.0)
        decision = launch.losses.on_due(2, now=10.0)
        assert outcome_of(decision) == ("FAILED", LOST_RANK, f"node000002 {self.WORDS}")
        assert decision is not None
        assert decision.grace == 7.0
        assert launch.losses.due_nodes(now=10.0) == [], "once"

    def test_a_second_one_is_named_in_the_same_reason(self) -> None:
        launch = Launch()
        for node in (2, 1):
            launch.losses.on_notice(node, notice(12.0), now=10.0)
        first, second = launch.losses.on_due(2, now=10.0), launch.losses.on_due(1, now=11.0)
        assert second == Stop(grace=6.0)
        assert outcome_of(first)[2] == f"node[000001-000002] {self.WORDS}"

    def test_a_job_that_may_shrink_ends_its_ranks_alone(self) -> None:
        launch = Launch(min_nodes=2)
        launch.losses.on_notice(3, notice(30.0), now=10.0)
        decision = launch.losses.on_due(3, now=10.0)
        message = f"node000003 {self.WORDS}; continuing on 3 nodes (needed: 2)"
        assert decision == GoOn(3, message, grace=20.0)
        assert launch.losses.on_lost(3, WHY, now=11.0) is None, "it was expected to go"
        assert launch.losses.to_sweep(finished={3}) == []
        assert launch.losses.to_sweep(finished=set()) == [3]

    def test_one_whose_ranks_have_all_ended_changes_nothing(self) -> None:
        launch = Launch()
        launch.ranks.ended.update({4: 0, 5: 0})
        launch.losses.on_notice(2, notice(30.0), now=10.0)
        assert launch.losses.on_due(2, now=10.0) is None


class TestAnMpirunThatLostANode:
    def test_the_node_is_found_in_its_output(self, tmp_path: Path) -> None:
        launch = Launch(kind="mpi")
        stream = StreamWriter(str(tmp_path))
        assert launch.losses.find_lost(stream, mpirun_status=1) is None
        stream.write(LAUNCHER, 0, 2, b"Timeout, server node000002 not responding.\r\n")
        found = launch.losses.find_lost(stream, mpirun_status=1)
        stream.close()
        why = "mpirun ended with exit status 1 when it lost the connection to its daemon there"
        assert found is not None
        assert found.reason == f"node000002 (ranks 4, 5) is lost: {why}"
        assert launch.events == [("lost-node", "node000002", why)]
        assert launch.losses.to_sweep(finished=set()) == [2]
