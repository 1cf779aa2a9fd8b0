"""Restarts after a failure: what restarts, how often, what ranks and records hold of it, what ends it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launch.job.spec import Kind
from tests.launch.standin import (
    Nodes,
    Started,
    left_of,
    lines,
    remarks,
    shell,
    start,
    states,
    until,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

ONCE = "echo run $RANKLIFT_RESTART_COUNT; [ $RANK$RANKLIFT_RESTART_COUNT = 10 ] && exit 3; sleep 0.5"
"""Rank 1 fails the first time."""
KINDS = pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mpi", {}),
        ("pytorch", {}),
        ("pytorch", {"per_node": True, "processes_per_node": None}),
        ("tensorflow", {}),
    ],
    ids=["mpi", "pytorch", "per-node", "tensorflow"],
)


def events(nodes: Nodes, job: str, what: str) -> list[dict[str, Any]]:
    """The events of one sort that the head has kept."""
    text = (nodes.folder / "node000000/.ranklift/jobs" / job / "events.jsonl").read_text()
    return [event for event in map(json.loads, text.splitlines()) if event["event"] == what]


def runner_of(nodes: Nodes, node: int, job: str) -> int:
    """The process that has the job's exits on a node open."""
    exits = nodes.folder / nodes.nodes[node].name / ".ranklift/jobs" / job / "exits.jsonl"
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            for descriptor in (entry / "fd").iterdir():
                with suppress(OSError):  # it was closed
                    if descriptor.readlink() == exits:
                        return int(entry.name)
    raise AssertionError(f"no runner of {job} on node {node}")


class TestAfterAFailure:
    @KINDS
    def test_the_job_is_launched_anew_and_its_records_tell_of_both(
        self, nodes: Nodes, kind: Kind, options: dict[str, Any]
    ) -> None:
        script = ONCE.replace("$RANK$", "$NODE_RANK$") if kind != "mpi" else ONCE
        state, result = nodes.run(shell(script, kind, max_restarts=3, **options))
        assert (state.state, state.exit_status, state.restarts, state.failure) == ("SUCCEEDED", 0, 1, None)
        assert states(result) == ["STARTING", "RUNNING", "STARTING", "RUNNING", "SUCCEEDED"]
        failed = "rank 1 on node000001 ended with exit status 3"
        assert f"restart 1 of 3: {failed}" in remarks(result)
        assert [(e["count"], e["reason"]) for e in events(nodes, state.job, "restart")] == [(1, failed)]
        (failure,) = events(nodes, state.job, "failure")
        assert (failure["rank"], failure["node"], failure["status"]) == (1, "node000001", 3)
        assert failure["last_lines"] == ["run 0"]
        exits = {(e["attempt"], e["rank"]): e for e in events(nodes, state.job, "exit")}
        assert sorted(exits) == [(attempt, rank) for attempt in (0, 1) for rank in range(3)]
        assert (exits[0, 1]["status"], exits[0, 1]["stopped"]) == (3, False)
        assert [exits[1, rank]["status"] for rank in range(3)] == [0, 0, 0]
        assert left_of(state.job) == []

    @KINDS
    def test_ranks_logs_are_gone_on_with(self, nodes: Nodes, kind: Kind, options: dict[str, Any]) -> None:
        script = ONCE.replace("$RANK$", "$NODE_RANK$") if kind != "mpi" else ONCE
        state, _ = nodes.run(shell(script, kind, max_restarts=1, **options))
        log = nodes.folder / "node000002/.ranklift/jobs" / state.job / "logs/rank-2.log"
        assert log.read_text() == "run 0\nrun 1\n"

    def test_ranks_are_told_first_that_they_will_end(self, nodes: Nodes) -> None:
        script = 'trap "echo saved; exit 0" TERM; ' + ONCE + "; [ $RANKLIFT_RESTART_COUNT = 1 ] && exit; "
        state, result = nodes.run(shell(script + "sleep 60 & wait", max_restarts=1))
        assert state.state == "SUCCEEDED"
        assert sorted(rank for rank, text in lines(result) if text == "saved") == [0, 2]

    def test_the_last_failure_is_the_jobs_and_the_first_is_told(self, nodes: Nodes) -> None:
        state, result = nodes.run(shell("exit $((RANKLIFT_RESTART_COUNT + 3))", max_restarts=2))
        assert (state.state, state.exit_status, state.restarts) == ("FAILED", 5, 2)
        assert re.fullmatch(
            r"rank \d on node00000\d ended with exit status 5 "
            r"\(in restart 2 of 2; the first failure was: rank \d on node00000\d ended with exit status 3\)",
            state.reason,
        )
        assert [event["status"] for event in events(nodes, state.job, "failure")] == [3, 4, 5]
        assert len(re.findall(r"^restart \d of 2: ", remarks(result), re.M)) == 2

    def test_a_runner_that_was_killed(self, nodes: Nodes) -> None:
        started = start(nodes, shell("echo up; [ $RANKLIFT_RESTART_COUNT = 1 ] || sleep 300", max_restarts=1))
        until(lambda: len(lines(started.events)) == 3)
        os.kill(runner_of(nodes, 1, started.job), signal.SIGKILL)
        state = started.end()
        assert (state.state, state.restarts) == ("SUCCEEDED", 1)
        why = "its runner was killed, or the node is gone"
        (lost,) = events(nodes, started.job, "lost-node")
        assert (lost["node"], lost["reason"]) == ("node000001", why)
        (failure,) = events(nodes, started.job, "failure")
        assert (failure["rank"], failure["node"], failure["last_lines"]) == (None, "node000001", [why])
        assert left_of(started.job) == []

    def test_an_mpirun_that_was_killed(self, nodes: Nodes) -> None:
        script = "echo up; [ $RANKLIFT_RESTART_COUNT = 1 ] || sleep 300"
        started = start(nodes, shell(script, "mpi", max_restarts=1))
        until(lambda: len(lines(started.events)) == 3)
        os.kill(mpirun_of(started), signal.SIGKILL)
        state = started.end()
        assert (state.state, state.restarts) == ("SUCCEEDED", 1)
        (restart,) = events(nodes, started.job, "restart")
        assert restart["reason"].startswith("mpirun was ended by signal 9 (SIGKILL)")
        assert left_of(started.job) == []


def mpirun_of(started: Started) -> int:
    """The job's mpirun, which has its hostfile as an argument. Open MPI 5's becomes prterun."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if Path(words[0]).name in ("mpirun", "prterun") and any(started.job in word for word in words):
            return int(entry.name)
    raise AssertionError("no mpirun")


class TestWhatIsNotTriedAgain:
    def test_a_job_without_restarts(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell(ONCE))
        assert (state.state, state.exit_status, state.restarts) == ("FAILED", 3, 0)

    def test_a_job_of_which_no_rank_ever_ran(self, nodes: Nodes) -> None:
        nodes.down(1)
        state, result = nodes.run(shell("true", max_restarts=3))
        assert (state.state, state.restarts) == ("FAILED", 0)
        assert "restart" not in remarks(result)

    def test_a_node_that_is_unfit_by_then_ends_the_job(self, nodes: Nodes) -> None:
        script = "[ $RANK = 1 ] || sleep 60; touch $STANDIN/down/node000002; exit 3"
        state, _ = nodes.run(shell(script, max_restarts=3))
        assert (state.state, state.exit_status, state.restarts) == ("FAILED", 255, 1)
        assert state.failure is not None
        assert (state.failure.rank, state.failure.node, state.failure.status) == (1, "node000001", 3)
        assert state.reason == (
            "no rank was started: node000002: ssh: connect to host node000002 port 22: No route to host "
            "(in restart 1 of 3; the first failure was: rank 1 on node000001 ended with exit status 3)"
        )
        assert [event["rank"] for event in events(nodes, state.job, "failure")] == [1, None]

    def test_one_that_was_cancelled_while_it_ran(self, nodes: Nodes) -> None:
        started = start(nodes, shell("echo up; sleep 300", max_restarts=3))
        until(lambda: len(lines(started.events)) == 3)
        state = nodes.cancel(started.job)
        assert (state.state, state.restarts) == ("CANCELLED", 0)

    def test_one_that_is_cancelled_while_what_failed_ends(self, nodes: Nodes) -> None:
        script = 'trap "" TERM; echo up; [ $RANK = 1 ] && exit 3; while :; do sleep 1; done'
        started = start(nodes, shell(script, max_restarts=3, grace_s=3))
        until(lambda: len(lines(started.events)) == 3)
        time.sleep(1)
        assert nodes.cancel(started.job).state == "CANCELLED"
        state = started.end()
        assert (state.state, state.exit_status, state.restarts) == ("CANCELLED", 130, 0)
        assert state.reason == "cancelled before restart 1: rank 1 on node000001 ended with exit status 3"
        assert state.failure is not None
        assert (state.failure.rank, state.failure.status) == (1, 3)

    def test_one_whose_time_was_over(self, nodes: Nodes) -> None:
        state, result = nodes.run(shell("sleep 300", max_restarts=3, timeout_s=2))
        assert (state.state, state.exit_status, state.restarts) == ("FAILED", 124, 0)
        assert state.reason == "its time limit of 2 s was reached"
        assert states(result) == ["STARTING", "RUNNING", "FAILED"]
        assert "restart" not in remarks(result)

    def test_one_that_is_cancelled_between_two_launches(self, nodes: Nodes) -> None:
        started = start(nodes, shell("[ $RANK = 1 ] && exit 3; sleep 60", max_restarts=3))
        until(lambda: "restart 1 of 3" in remarks(started.events))
        assert nodes.cancel(started.job).state == "CANCELLED"
        state = started.end()
        assert (state.state, state.exit_status, state.restarts) == ("CANCELLED", 130, 1)
        assert {event["attempt"] for event in events(nodes, started.job, "exit")} == {0}

    def test_the_time_limit_is_that_of_all_launches_together(self, nodes: Nodes) -> None:
        begun = time.monotonic()
        state, _ = nodes.run(shell("sleep 0.7; exit 3", max_restarts=50, timeout_s=4))
        assert (state.state, state.exit_status) == ("FAILED", 124)
        assert state.reason.startswith("its time limit of 4 s was reached ")
        assert time.monotonic() - begun < 10


class TestSlotsAndPort:
    def test_a_job_that_waits_does_not_come_in_between(self, nodes: Nodes) -> None:
        first = start(
            nodes, shell("date +%s.%N; sleep 0.3; exit $((1 - RANKLIFT_RESTART_COUNT))", max_restarts=1)
        )
        until(lambda: lines(first.events))
        second = start(nodes, shell("date +%s.%N"))
        assert first.end().state == "SUCCEEDED"
        assert second.end().state == "SUCCEEDED"
        times = [[float(text) for _, text in lines(one.events)] for one in (first, second)]
        assert len(times[0]) == 6
        assert max(times[0]) < min(times[1])

    def test_slots_that_another_heads_job_took_in_between_are_waited_for(self, nodes: Nodes) -> None:
        started = start(nodes, shell(ONCE, max_restarts=1))
        until(lambda: "restart 1 of 1" in remarks(started.events))
        with (nodes.folder / "node000001/.ranklift/slots/0").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("other-job" + " " * 40)
            lock.truncate(9)
            lock.flush()
            until(lambda: "QUEUED" in states(started.events))
        state = started.end()
        assert (state.state, state.restarts) == ("SUCCEEDED", 1)
        assert [event["state"] for event in events(nodes, started.job, "state")] == [
            "STARTING", "RUNNING", "STARTING", "QUEUED", "STARTING", "RUNNING", "SUCCEEDED",
        ]  # fmt: skip

    def test_the_limit_goes_on_while_a_restart_waits_for_slots(self, nodes: Nodes) -> None:
        started = start(nodes, shell(ONCE, max_restarts=1, timeout_s=4))
        until(lambda: "restart 1 of 1" in remarks(started.events))
        with (nodes.folder / "node000001/.ranklift/slots/0").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 124)


class TestARangeOfNodes:
    """A command that goes on by itself with fewer nodes, as torchrun does."""

    SCRIPT = "echo up; until [ -e $STANDIN/done ]; do sleep 0.1; done; echo end"

    def started(self, nodes: Nodes, fewest: int) -> Started:
        options: dict[str, Any] = {"per_node": True, "processes_per_node": None, "min_nodes": fewest}
        started = start(nodes, shell(self.SCRIPT, **options))
        until(lambda: len(lines(started.events)) == 3)
        return started

    def test_a_lost_node_does_not_end_the_job(self, nodes: Nodes) -> None:
        started = self.started(nodes, 2)
        nodes.down(1)  # nothing looks after what is left there: these nodes share their processes
        os.kill(runner_of(nodes, 1, started.job), signal.SIGKILL)
        why = "its runner was killed, or the node is gone"
        until(lambda: "node000001 is lost" in remarks(started.events))
        assert remarks(started.events) == (f"node000001 is lost: {why}; continuing on 2 nodes (needed: 2)")
        (now,) = nodes.jobs()
        assert (now.state, now.reason) == ("RUNNING", "continues without node000001")
        assert [(e["node"], e["reason"]) for e in events(nodes, started.job, "lost-node")] == [
            ("node000001", why)
        ]
        (nodes.folder / "done").touch()
        state = started.end()
        assert (state.state, state.exit_status, state.reason) == (
            "SUCCEEDED", 0, "without node000001, lost before",
        )  # fmt: skip
        assert sorted(rank for rank, text in lines(started.events) if text == "end") == [0, 2]

    def test_one_too_many_does(self, nodes: Nodes) -> None:
        started = self.started(nodes, 2)
        nodes.down(1)  # as above
        os.kill(runner_of(nodes, 1, started.job), signal.SIGKILL)
        until(lambda: "node000001 is lost" in remarks(started.events))
        os.kill(runner_of(nodes, 2, started.job), signal.SIGKILL)
        state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert state.reason == (
            "node000002 (rank 2) is lost: its runner was killed, or the node is gone "
            "(without node000001, lost before)"
        )
        assert left_of(started.job) == []

    def test_the_heads_own_does(self, nodes: Nodes) -> None:
        started = self.started(nodes, 1)
        os.kill(runner_of(nodes, 0, started.job), signal.SIGKILL)
        state = started.end()
        assert state.state == "FAILED"
        assert state.reason.startswith("node000000 (rank 0) is lost")
        assert left_of(started.job) == []
