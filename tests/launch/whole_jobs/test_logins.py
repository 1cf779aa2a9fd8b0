"""Nodes whose logins print, or end, before the command that comes over ssh."""

from __future__ import annotations

import pytest

from tests.launch.standin import Nodes, lines, shell

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]
PRINTS = {"a line": "echo Welcome", "less than a line": "printf Welcome", "much": "seq 100000"}


def logs_in_by(nodes: Nodes, line: str) -> None:
    for node in nodes.nodes:
        (nodes.folder / node.name / ".profile").write_text(line + "\n")


@pytest.mark.parametrize("kind", ["mpi", "pytorch"])
@pytest.mark.parametrize("prints", PRINTS.values(), ids=PRINTS)
def test_a_job_runs_on_nodes_whose_logins_print(nodes: Nodes, kind: str, prints: str) -> None:
    logs_in_by(nodes, prints)
    state, events = nodes.run(shell("echo rank $RANK", kind))
    assert (state.state, state.reason) == ("SUCCEEDED", "")
    assert sorted(text for _, text in lines(events)) == ["rank 0", "rank 1", "rank 2"]


def test_a_login_that_ends_is_the_reason_for_which_a_job_does_not_start(nodes: Nodes) -> None:
    (nodes.folder / "node000001/.profile").write_text("echo Maintenance; exit 3\n")
    state, _ = nodes.run(shell("true"))
    assert "node000001" in state.reason
    assert "its login ended before the command, after it had printed 'Maintenance'" in state.reason
