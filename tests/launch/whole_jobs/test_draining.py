"""A drained node gets no new job; those that came before keep it, or wait for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launch.job.spec import Kind
from launch.remote.node.slots import DRAINED
from tests.launch.standin import Nodes, lines, shell, start, states, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]


def drain(nodes: Nodes, node: int, ago: float = 60.0) -> tuple[Path, str]:
    """Drain the node ``ago`` seconds ago; return the note on it and its text."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago))
    note = Path(f"{nodes.folder}/{nodes.nodes[node].name}{DRAINED}")
    note.write_text(f"drained {since} by ann on desk\n")
    return note, f"drained {since} by ann on desk"


@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
@pytest.mark.parametrize("node", [0, 1])
def test_a_new_job_is_refused_by_the_name_of_a_drained_node(nodes: Nodes, kind: Kind, node: int) -> None:
    _, text = drain(nodes, node)
    state, events = nodes.run(shell("touch $HOME/ran", kind))
    assert state.state == "FAILED"
    assert state.reason == (
        f"no rank was started: {nodes.nodes[node].name} is {text}: "
        "choose other nodes, as with --nodes any:N; `fab undrain NODE` ends the drain"
    )
    assert "RUNNING" not in states(events)
    assert not list(nodes.folder.glob("*/ran"))


def test_a_job_that_was_queued_before_waits_for_the_end_of_the_drain(nodes: Nodes) -> None:
    first = start(nodes, shell("until [ -e $STANDIN/go ]; do sleep 0.1; done"))
    until(lambda: "RUNNING" in states(first.events))
    second = start(nodes, shell("echo second"))
    until(lambda: "QUEUED" in states(second.events))
    note, text = drain(nodes, 1, ago=-1)
    (nodes.folder / "go").touch()
    assert first.end().state == "SUCCEEDED"
    words = f"waits for {nodes.nodes[1].name}, {text}"
    until(lambda: any(job.reason == words for job in nodes.jobs()), 30)
    assert [job.waits_for for job in nodes.jobs() if job.reason == words] == [()]
    note.unlink()
    assert second.end().state == "SUCCEEDED"
    assert {line for _, line in lines(second.events)} == {"second"}


def test_a_job_that_runs_keeps_a_drained_node_through_its_restarts(nodes: Nodes) -> None:
    script = "until [ -e $STANDIN/go ]; do sleep 0.1; done; [ $RANKLIFT_RESTART_COUNT = 1 ]"
    job = start(nodes, shell(script, max_restarts=1))
    until(lambda: "RUNNING" in states(job.events))
    drain(nodes, 1, ago=-1)
    (nodes.folder / "go").touch()
    state = job.end()
    assert (state.state, state.restarts) == ("SUCCEEDED", 1)
