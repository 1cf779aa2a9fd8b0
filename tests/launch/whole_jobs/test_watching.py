"""Jobs on stand-in nodes as their operator sees them: followed, cancelled, queued, collected."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client import submit
from launch.client.events import Event, StateChange
from launch.client.log_filter import Selection
from launch.client.query import list_some
from launch.errors import InputError, NotPushed
from launch.job.spec import JobSpec, Kind
from launch.results.collect import collect
from tests.launch.standin import Nodes, left_of, lines, shell, start, states, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]


@contextmanager
def foreign(nodes: Nodes, index: int, slots: list[int]) -> Iterator[None]:
    """Slots of a node as a job with another head holds them."""
    folder = nodes.folder / nodes.nodes[index].name / ".ranklift/slots"
    folder.mkdir()
    with ExitStack() as stack:
        for slot in slots:
            lock = stack.enter_context((folder / str(slot)).open("w"))
            lock.write("other-job")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])


class TestBeingWatched:
    @KINDS
    def test_cancel_ends_ranks_that_ignore_sigterm_and_their_orphans(self, nodes: Nodes, kind: Kind) -> None:
        script = (
            'trap "" TERM; (setsid setsid sleep 300 >/dev/null 2>&1 &); echo up; while :; do sleep 1; done'
        )
        started = start(nodes, shell(script, kind, grace_s=0.5))
        until(lambda: len(lines(started.events)) == 3)
        state = nodes.cancel(started.job)
        assert (state.state, state.exit_status) == ("CANCELLED", 130)
        assert left_of(started.job) == []
        assert started.end().state == "CANCELLED"
        assert nodes.cancel(started.job) == state

    def test_no_job_is_made_while_a_node_is_not_known_to_hold_the_code(self, nodes: Nodes) -> None:
        made = replace(nodes.plan(shell("true")), snapshots=("0123456789abcdef",))
        with pytest.raises(NotPushed, match="not every node holds 0123456789abcdef: push first"):
            submit.submit(made, nodes.head)
        assert nodes.jobs() == []

    def test_a_job_goes_on_when_nobody_follows_and_can_be_followed_later(self, nodes: Nodes) -> None:
        made = nodes.plan(shell("echo one; sleep 0.5; echo two"))
        assert submit.submit(made, nodes.head) == made.id
        events: list[Event] = []
        state = submit.follow(made.id, nodes.head, events.append, remote="hash")
        assert state.state == "SUCCEEDED"
        assert sorted(lines(events)) == [(i, text) for i in range(3) for text in ("one", "two")]
        last: list[Event] = []
        submit.follow(made.id, nodes.head, last.append, remote="hash", selection=Selection(tail=2))
        assert [text for _, text in lines(last)] == [text for _, text in lines(events)[-2:]]

    def test_states_come_in_order_and_the_last_after_all_output(self, nodes: Nodes) -> None:
        _, events = nodes.run(shell("sleep 0.3; echo bye"))
        assert states(events) == ["STARTING", "RUNNING", "SUCCEEDED"]
        assert isinstance(events[-1], StateChange)

    def test_jobs_are_listed_oldest_first(self, nodes: Nodes) -> None:
        ids = [nodes.run(JobSpec(name, "pytorch", ("true",)))[0].job for name in ("b", "a")]
        assert [state.job for state in nodes.jobs()] == ids

    def test_a_supervisor_that_was_killed_leaves_a_lost_job_and_no_rank(self, nodes: Nodes) -> None:
        started = start(nodes, shell("echo up; sleep 300", grace_s=0.3))
        until(lambda: len(lines(started.events)) == 3)
        folder = nodes.folder / "node000000/.ranklift/jobs" / started.job
        os.kill(json.loads((folder / "state.json").read_text())["supervisor"]["pid"], signal.SIGKILL)
        assert started.end().state == "LOST"
        until(lambda: left_of(started.job) == [])

    def test_unknown_jobs_and_a_head_without_node_code(self, nodes: Nodes) -> None:
        with pytest.raises(InputError, match=r"no job nope on this head: .*; see"):
            submit.follow("nope", nodes.head, print, remote="hash")
        with pytest.raises(InputError, match="no job nope"):
            nodes.cancel("nope")
        with pytest.raises(NotPushed, match="push first"):
            list_some(nodes.head, remote="other")


class TestSharingNodes:
    def test_a_second_job_waits_for_the_slots_and_says_for_whom(self, nodes: Nodes) -> None:
        first = start(nodes, shell("echo up; sleep 1"))
        until(lambda: states(first.events)[-1:] == ["RUNNING"])
        state, events = nodes.run(shell("true"))
        assert states(events)[0] == "QUEUED"
        queued = next(e.state for e in events if isinstance(e, StateChange))
        assert queued.reason == f"waits for {first.job}"
        ended = first.end().ended
        assert ended is not None
        assert state.started is not None
        assert state.started >= ended

    def test_two_jobs_share_nodes_whose_slots_suffice_each_with_its_own_devices(self, tmp_path: Path) -> None:
        nodes = Nodes(tmp_path, [4])
        script = "echo $CUDA_VISIBLE_DEVICES $MASTER_PORT; sleep 2"
        first = start(nodes, shell(script, processes_per_node=2))
        until(lambda: lines(first.events))
        _, events = nodes.run(shell(script, processes_per_node=2))
        one, two = ({text for _, text in lines(e)}.pop().split() for e in (first.events, events))
        assert (one[0], two[0]) == ("0,1", "2,3")
        assert one[1] != two[1]
        ended, started = first.end().ended, events[0].state.started  # type: ignore[union-attr]
        assert ended is not None
        assert started is not None
        assert started < ended

    @KINDS
    def test_slots_that_a_job_with_another_head_holds_are_waited_for(self, nodes: Nodes, kind: Kind) -> None:
        with foreign(nodes, 1, [0]):
            started = start(nodes, shell("echo ran", kind))
            until(lambda: "QUEUED" in states(started.events))
            held = next(
                e.state for e in started.events if isinstance(e, StateChange) and e.state.state == "QUEUED"
            )
            time.sleep(4)
            assert states(started.events) == ["STARTING", "QUEUED"]
        assert held.reason == "waits for other-job on node000001"
        assert started.end().state == "SUCCEEDED"
        noted = nodes.folder / "node000000/.ranklift/jobs" / started.job / "events.jsonl"
        until(lambda: "SUCCEEDED" in noted.read_text())  # it is written behind the state itself
        result = [json.loads(line) for line in noted.read_text().splitlines()]
        assert [event["state"] for event in result if event["event"] == "state"] == [
            "STARTING", "QUEUED", "STARTING", "RUNNING", "SUCCEEDED",
        ]  # fmt: skip

    @KINDS
    def test_free_slots_beside_those_of_a_job_with_another_head_are_taken(
        self, tmp_path: Path, kind: Kind
    ) -> None:
        nodes = Nodes(tmp_path, [4, 4])
        with foreign(nodes, 1, [0, 2]):
            state, events = nodes.run(shell("echo $CUDA_VISIBLE_DEVICES", kind, processes_per_node=2))
        assert state.state == "SUCCEEDED"
        assert sorted(lines(events)) == [(0, "0,1"), (1, "0,1"), (2, "1,3"), (3, "1,3")]
        assert "QUEUED" not in states(events)

    def test_a_job_that_waits_for_another_heads_keeps_its_place(self, tmp_path: Path) -> None:
        nodes = Nodes(tmp_path, [6, 6])
        ssh = nodes.bin / "ssh"
        ssh.write_text(ssh.read_text().replace("#!/bin/sh\n", "#!/bin/sh\nsleep 1\n"))
        with foreign(nodes, 1, [0, 1, 2]):
            first = start(nodes, shell("true", processes_per_node=4))
            until(lambda: states(first.events))
            second = start(nodes, shell("true", processes_per_node=2))
            until(lambda: "QUEUED" in states(first.events))
            time.sleep(3.5)
            assert set(states(second.events)) == {"QUEUED"}
        ended, started = first.end(), second.end()
        assert (ended.state, started.state) == ("SUCCEEDED", "SUCCEEDED")
        assert started.started is not None
        assert ended.started is not None
        assert started.started >= ended.started

    def test_a_job_that_waits_for_another_heads_can_be_cancelled(self, nodes: Nodes) -> None:
        with foreign(nodes, 1, [0]):
            started = start(nodes, shell("true"))
            until(lambda: "QUEUED" in states(started.events))
            assert nodes.cancel(started.job).state == "CANCELLED"

    def test_a_queued_job_can_be_cancelled(self, nodes: Nodes) -> None:
        first = start(nodes, shell("echo up; sleep 2"))
        until(lambda: lines(first.events))
        second = start(nodes, shell("true"))
        until(lambda: states(second.events) == ["QUEUED"])
        assert nodes.cancel(second.job).state == "CANCELLED"
        assert first.end().state == "SUCCEEDED"


class TestCollecting:
    def test_logs_outputs_and_records_of_every_node_nothing_overwritten(
        self, nodes: Nodes, tmp_path: Path
    ) -> None:
        script = 'echo "rank $RANK"; echo bad >&2; echo $RANK > "$RANKLIFT_OUTPUT_DIR/m ü.txt"'
        state, _ = nodes.run(shell(script, "mpi"))
        (tmp_path / "results" / state.job / "logs").mkdir(parents=True)
        (tmp_path / "results" / state.job / "logs/rank-1.log").write_text("mine")
        report = collect(state.job, nodes.head, tmp_path / "results", remote="hash")
        assert report.errors == {}
        found = {
            str(path.relative_to(report.folder)): path.read_text()
            for path in report.folder.rglob("*")
            if path.suffix in (".log", ".txt") and path.name != "supervisor.log"
        }
        assert found == {
            "logs/rank-0.log": "rank 0\nbad\n",
            "logs/rank-1.log": "mine",
            "logs/rank-2.log": "rank 2\nbad\n",
            **{f"outputs/node00000{i}/m ü.txt": f"{i}\n" for i in range(3)},
        }
        assert {"job.json", "state.json", "exits.jsonl", "events.jsonl"} <= {
            path.name for path in report.folder.iterdir()
        }

    def test_a_node_that_is_gone_is_named_and_the_rest_brought(self, nodes: Nodes, tmp_path: Path) -> None:
        state, _ = nodes.run(shell("echo hi"))
        nodes.down(1)
        report = collect(state.job, nodes.head, tmp_path / "results", remote="hash")
        assert list(report.errors) == ["node000001"]
        assert "No route to host" in str(report.errors["node000001"])
        assert sorted(p.name for p in (report.folder / "logs").iterdir()) == ["rank-0.log", "rank-2.log"]
