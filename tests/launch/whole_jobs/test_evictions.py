"""Azure's notice to a node, on stand-in nodes: jobs end before it is gone, or go on without it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.job.spec import Kind
from tests.launch.remote.agent.installed import install_agent
from tests.launch.standin import (
    Nodes,
    Started,
    end_everything,
    left_of,
    lines,
    remarks,
    shell,
    start,
    states,
    until,
)
from tests.launch.whole_jobs.test_restarting import KINDS, events

pytestmark = pytest.mark.timeout(120)

AT = int(time.time()) + 30
WHEN = time.strftime("%H:%M:%S UTC", time.gmtime(AT))
TRAP = 'trap "echo saved; exit 0" TERM; echo up; sleep 300 & wait'


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, [2, 1, 3])


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_everything()


def notify(nodes: Nodes, node: int, left_s: float = 30.0, **other: Any) -> Path:
    """What a node's watch writes when Azure gives it notice."""
    path = nodes.folder / nodes.nodes[node].name / ".ranklift/agent/notice.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {"id": "A", "type": "Preempt", "node": "x", "not_before": AT, "at_once": True}
    fields.update(deadline=time.monotonic() + left_s, **other)
    path.with_suffix(".new").write_text(json.dumps(fields))
    path.with_suffix(".new").rename(path)
    return path


def up(nodes: Nodes, script: str = TRAP, kind: Kind = "pytorch", **options: Any) -> Started:
    started = start(nodes, shell(script, kind, **options))
    until(lambda: len(lines(started.events)) == 3)
    return started


class TestAJobThatNeedsAllItsNodes:
    @KINDS
    def test_every_rank_is_told_to_end_and_the_job_names_the_node(
        self, nodes: Nodes, kind: Kind, options: dict[str, Any]
    ) -> None:
        started = up(nodes, kind=kind, **options)
        begun = time.monotonic()
        notify(nodes, 1)
        state = started.end()
        assert time.monotonic() - begun < 8
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert state.reason == f"node000001 will be taken by Azure at {WHEN} (Preempt)"
        assert state.failure is not None
        assert (state.failure.rank, state.failure.node) == (None, "node000001")
        assert sorted(rank for rank, text in lines(started.events) if text == "saved") == [0, 1, 2]
        assert left_of(state.job) == []
        assert [(e["node"], e["reason"]) for e in events(nodes, state.job, "eviction")] == [
            ("node000001", f"will be taken by Azure at {WHEN} (Preempt)")
        ]

    @pytest.mark.parametrize("kind", ["mpi", "pytorch"])
    def test_ranks_that_do_not_end_are_ended_before_the_node_is(self, nodes: Nodes, kind: Kind) -> None:
        started = up(nodes, 'trap "" TERM; echo up; while :; do sleep 1; done', kind, grace_s=60)
        begun = time.monotonic()
        notify(nodes, 2, 8.0)
        state = started.end()
        assert state.state == "FAILED"
        assert 2 < time.monotonic() - begun < 8
        assert left_of(state.job) == []

    def test_several_nodes_are_named_together(self, nodes: Nodes) -> None:
        slow = 'trap "sleep 2; exit 0" TERM; echo up; sleep 300 & wait'
        started = up(nodes, slow)
        notify(nodes, 0)
        notify(nodes, 1)
        notify(nodes, 2, type="Terminate")
        assert started.end().reason in (
            f"node[000000-000001] will be taken by Azure at {WHEN} (Preempt); "
            f"node000002 will be taken by Azure at {WHEN} (Terminate)",
            f"node000002 will be taken by Azure at {WHEN} (Terminate); "
            f"node[000000-000001] will be taken by Azure at {WHEN} (Preempt)",
        )

    def test_a_restart_finds_the_node_unfit_while_the_notice_stands(self, nodes: Nodes) -> None:
        started = up(nodes, max_restarts=3)
        notify(nodes, 1)
        state = started.end()
        fate = f"will be taken by Azure at {WHEN} (Preempt)"
        assert (state.state, state.restarts) == ("FAILED", 1)
        assert state.reason == (
            f"no rank was started: node000001: {fate} "
            f"(in restart 1 of 3; the first failure was: node000001 {fate})"
        )

    def test_a_restart_goes_on_once_it_was_called_off(self, nodes: Nodes) -> None:
        script = 'trap "exit 0" TERM; echo up; [ $RANKLIFT_RESTART_COUNT = 1 ] || { sleep 300 & wait; }'
        started = up(nodes, script, max_restarts=1)
        path = notify(nodes, 1)
        until(lambda: "restart 1 of 1" in remarks(started.events))
        path.unlink()
        state = started.end()
        assert (state.state, state.restarts) == ("SUCCEEDED", 1)


class TestAnEventThatCanWait:
    def test_the_job_goes_on_for_as_long_as_it_may(self, nodes: Nodes) -> None:
        started = up(nodes, grace_s=1)
        notify(nodes, 1, 34.0, type="Redeploy", at_once=False)
        until(lambda: events(nodes, started.job, "eviction"))
        time.sleep(1)
        (now,) = nodes.jobs()
        assert now.state == "RUNNING"
        state = started.end()
        assert state.reason == f"node000001 will be taken by Azure at {WHEN} (Redeploy)"

    def test_one_that_is_called_off_is_forgotten(self, nodes: Nodes) -> None:
        started = up(nodes, "echo up; until [ -e $STANDIN/done ]; do sleep 0.1; done", grace_s=1)
        path = notify(nodes, 1, 600.0, type="Redeploy", at_once=False)
        until(lambda: events(nodes, started.job, "eviction"))
        path.unlink()
        until(lambda: len(events(nodes, started.job, "eviction")) == 2)
        (nodes.folder / "done").touch()
        assert started.end().state == "SUCCEEDED"
        assert events(nodes, started.job, "eviction")[1]["reason"] == "will not be taken by Azure after all"


class TestARangeOfNodes:
    SCRIPT = (
        'trap "echo saved; exit 0" TERM; echo up; until [ -e $STANDIN/done ]; do sleep 0.1; done; echo end'
    )

    def started(self, nodes: Nodes, fewest: int) -> Started:
        options: dict[str, Any] = {"per_node": True, "processes_per_node": None, "min_nodes": fewest}
        return up(nodes, self.SCRIPT, **options)

    def test_the_others_go_on(self, nodes: Nodes) -> None:
        started = self.started(nodes, 2)
        notify(nodes, 1)
        until(lambda: (1, "saved") in lines(started.events))
        assert remarks(started.events) == (
            f"node000001 will be taken by Azure at {WHEN} (Preempt); continuing on 2 nodes (needed: 2)"
        )
        until(lambda: "continues without" in nodes.jobs()[0].reason)
        (nodes.folder / "done").touch()
        state = started.end()
        assert (state.state, state.reason) == ("SUCCEEDED", "without node000001, lost before")
        assert sorted(rank for rank, text in lines(started.events) if text == "end") == [0, 2]

    @pytest.mark.parametrize(("node", "fewest"), [(1, 3), (0, 1)], ids=["one too many", "the head"])
    def test_without_enough_or_the_head_the_job_ends(self, nodes: Nodes, node: int, fewest: int) -> None:
        started = self.started(nodes, fewest)
        notify(nodes, node)
        state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert state.reason == f"node00000{node} will be taken by Azure at {WHEN} (Preempt)"
        assert left_of(state.job) == []


class TestWhileANoticeStands:
    @pytest.mark.parametrize("kind", ["mpi", "pytorch"])
    def test_no_job_begins_on_the_node(self, nodes: Nodes, kind: Kind) -> None:
        notify(nodes, 2)
        state, result = nodes.run(shell("touch $HOME/ran", kind))
        assert (state.state, state.exit_status) == ("FAILED", 255)
        fate = f"will be taken by Azure at {WHEN} (Preempt)"
        assert state.reason == f"no rank was started: node000002: {fate}"
        assert "RUNNING" not in states(result)
        assert not list(nodes.folder.glob("node*/ran"))

    def test_what_is_no_notice_is_none(self, nodes: Nodes) -> None:
        path = nodes.folder / "node000001/.ranklift/agent/notice.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        for text in ("", "{}", "[]", '{"deadline": "x", "not_before": 1, "type": "Preempt", "at_once": 1}'):
            path.write_text(text)
            state, _ = nodes.run(shell("true"))
            assert state.state == "SUCCEEDED"


def test_a_notice_during_the_setup_line_keeps_the_job_from_starting(nodes: Nodes) -> None:
    started = start(nodes, shell("touch $HOME/ran", setup="touch $HOME/begun; sleep 5"))
    until(lambda: len(list(nodes.folder.glob("node*/begun"))) == 3)
    notify(nodes, 1)
    state = started.end()
    assert re.fullmatch(rf"no rank was started: .*will be taken by Azure at {WHEN} \(Preempt\)", state.reason)
    assert not list(nodes.folder.glob("node*/ran"))


class TestAClusterWhoseTimeIsOver:
    """What the leader has each node's watch do, ``watch.py end``, on the head."""

    @staticmethod
    def end_jobs(nodes: Nodes, within: str = "20") -> str:
        watch = nodes.folder / "agent" / "watch.py"
        if not watch.exists():
            install_agent(watch.parent)
        argv = ["python3", "-I", "-S", str(watch), "end", within, "the cluster's lifetime is over"]
        done = subprocess.run(argv, env=nodes.env, capture_output=True, check=True, text=True)
        return done.stdout

    @pytest.mark.parametrize("kind", ["mpi", "pytorch"])
    def test_jobs_end_and_say_why(self, nodes: Nodes, kind: Kind) -> None:
        started = up(nodes, kind=kind)
        assert self.end_jobs(nodes) == '{"ended": 1}'
        state = started.end()
        assert (state.state, state.exit_status) == ("CANCELLED", 130)
        assert state.reason == "the cluster's lifetime is over"
        assert sorted(rank for rank, text in lines(started.events) if text == "saved") == [0, 1, 2]
        assert self.end_jobs(nodes) == '{"ended": 0}'

    def test_one_that_waits_does_too(self, nodes: Nodes) -> None:
        first = up(nodes)
        second = start(nodes, shell("true"))
        until(lambda: "QUEUED" in states(second.events))
        assert self.end_jobs(nodes) == '{"ended": 2}'
        assert [one.end().reason for one in (first, second)] == ["the cluster's lifetime is over"] * 2
