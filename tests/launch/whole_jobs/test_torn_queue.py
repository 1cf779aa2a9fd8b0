"""A head whose queue.json was torn goes on: no job is given what another one holds, and none is kept out."""

from __future__ import annotations

import pytest

from tests.launch.standin import Nodes, lines, shell, start, states, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

UNTIL_TOLD = "echo up; while [ ! -e $STANDIN/go ]; do sleep 0.05; done"


@pytest.mark.parametrize("text", ["", "{", "[{}]"])
def test_a_running_job_keeps_its_slots_and_those_that_wait_get_them_later(nodes: Nodes, text: str) -> None:
    queue = nodes.folder / "node000000/.ranklift/queue.json"
    first = start(nodes, shell(UNTIL_TOLD, processes_per_node=None))
    until(lambda: len(lines(first.events)) == 6)
    second = start(nodes, shell("echo up", processes_per_node=None))
    until(lambda: states(second.events)[-1:] == ["QUEUED"])
    queue.write_text(text)
    third = start(nodes, shell("echo up", processes_per_node=None))
    until(lambda: states(third.events)[-1:] == ["QUEUED"])
    until(lambda: first.job in {job for state in nodes.jobs() for job in state.waits_for})
    assert [state.state for state in nodes.jobs()] == ["RUNNING", "QUEUED", "QUEUED"]
    assert lines(second.events) == lines(third.events) == []
    (nodes.folder / "go").touch()
    assert [job.end().state for job in (first, second, third)] == ["SUCCEEDED"] * 3
