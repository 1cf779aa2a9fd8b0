"""The phases that a job leaves in its events: one follows another, from its queue to its end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from launch.client import submit
from launch.client.query import Happening, show_job
from launch.job.spec import Kind
from tests.launch.standin import Nodes, shell

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]


def phases(nodes: Nodes, job: str) -> list[Happening]:
    return [event for event in show_job(job, nodes.head, remote="hash").events if event.event == "phase"]


def named(found: list[Happening]) -> list[tuple[object, object]]:
    return [(event.fields["phase"], event.fields["attempt"]) for event in found]


def span(event: Happening) -> tuple[float, float]:
    start, end = event.fields["start"], event.fields["end"]
    assert isinstance(start, float)
    assert isinstance(end, float)
    return start, end


@pytest.mark.parametrize("kind", ["mpi", "pytorch"])
def test_each_begins_where_the_one_before_ends(nodes: Nodes, kind: Kind) -> None:
    state, _ = nodes.run(shell("sleep 1.5", kind))
    found = phases(nodes, state.job)
    assert [name for name, _ in named(found) if name != "look"] == ["start", "run", "end"]
    assert {event.fields["verdict"] for event in found} == {""}
    spans = [span(event) for event in found]
    assert all(after[0] == pytest.approx(before[1], abs=0.05) for before, after in pairwise(spans))
    (run,) = (span(event) for event in found if event.fields["phase"] == "run")
    assert 1.4 < run[1] - run[0] < 5
    assert state.ended is not None
    assert spans[-1][1] == pytest.approx(state.ended.timestamp(), abs=0.5)


def test_a_restart_has_phases_of_its_own_and_the_failure_as_a_verdict(nodes: Nodes) -> None:
    line = 'if [ "$RANKLIFT_RESTART_COUNT" = 0 ]; then exit 3; fi; sleep 0.5'
    state, _ = nodes.run(shell(line, max_restarts=1))
    assert state.state == "SUCCEEDED"
    found = phases(nodes, state.job)
    by_attempt = {attempt: [name for name, one in named(found) if one == attempt] for attempt in (0, 1)}
    assert by_attempt[0][-1] == by_attempt[1][-1] == "end"
    assert by_attempt[1][0] == "start"
    verdicts = [event.fields["verdict"] for event in found if event.fields["phase"] == "end"]
    assert "exit status 3" in str(verdicts[0])
    assert verdicts[1] == ""


def test_what_came_before_the_job_comes_first_by_the_heads_clock(nodes: Nodes) -> None:
    made = replace(
        nodes.plan(shell("true")),
        stages=(
            {"phase": "stage-environment", "start": -75.0, "end": -13.0, "bytes": 0, "verdict": ""},
            {"phase": "stage-code", "start": -12.0, "end": -1.0, "bytes": 99, "verdict": ""},
        ),
    )
    state = submit.submit_and_follow(made, nodes.head, lambda _: None)
    found = phases(nodes, state.job)
    assert named(found)[:2] == [("stage-environment", 0), ("stage-code", 0)]
    created = state.created.timestamp()
    assert span(found[0]) == pytest.approx((created - 75, created - 13), abs=0.01)
    assert found[1].fields["bytes"] == 99


def test_a_job_that_waits_is_in_the_queue(nodes: Nodes) -> None:
    first = submit.submit(nodes.plan(shell("sleep 2")), nodes.head)
    state, _ = nodes.run(shell("true"))
    found = phases(nodes, state.job)
    assert named(found)[0] == ("queue", 0)
    begun, ended = span(found[0])
    assert ended - begun > 0.5
    assert "queue" not in {name for name, _ in named(phases(nodes, first))}


def test_a_job_that_is_cancelled_in_the_queue_ends_there(nodes: Nodes) -> None:
    first = submit.submit(nodes.plan(shell("sleep 60")), nodes.head)
    second = submit.submit(nodes.plan(shell("sleep 60")), nodes.head)
    nodes.cancel(second)
    (only,) = phases(nodes, second)
    assert (only.fields["phase"], only.fields["verdict"]) == ("queue", "cancelled before its turn came")
    nodes.cancel(first)
