"""What ranks write to ``./outputs`` and ``$RANKLIFT_OUTPUT_DIR``: one folder, whatever the code has there."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.job.spec import Kind
from launch.results.collect import collect
from tests.launch.standin import Nodes, lines, shell, start, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])


def push(nodes: Nodes, **files: str) -> None:
    """Pushes code with these files in its folder ``outputs``."""
    for node in nodes.nodes:
        folder = nodes.folder / node.name / ".ranklift/snapshots/code/outputs"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)


def collected(nodes: Nodes, job: str) -> dict[str, str]:
    """Outputs by their paths in the results folder."""
    into = nodes.folder / "results"
    assert collect(job, nodes.head, into, remote="hash").is_complete
    top = into / job / "outputs"
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def of_both(nodes: Nodes, **files: str) -> dict[str, str]:
    return {f"{node.name}/{name}": text for node in nodes.nodes for name, text in files.items()}


@pytest.fixture
def two(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, [2, 2])


@KINDS
def test_outputs_are_collected_where_the_code_has_a_folder_of_that_name(two: Nodes, kind: Kind) -> None:
    push(two, gitkeep="", big="x" * 100_000, log="before\n")
    script = "cat outputs/log > outputs/read$LOCAL_RANK; echo m > $RANKLIFT_OUTPUT_DIR/m"
    state, _ = two.run(shell(script, kind, processes_per_node=2))
    assert state.state == "SUCCEEDED", state.reason
    assert collected(two, state.job) == of_both(two, m="m\n", read0="before\n", read1="before\n")
    changed, _ = two.run(shell("echo after >> outputs/log", kind))
    assert collected(two, changed.job) == of_both(two, log="before\nafter\n")


@KINDS
def test_outputs_are_collected_that_a_rank_removed_and_made_again(two: Nodes, kind: Kind) -> None:
    push(two, old="")
    script = (
        "[ $LOCAL_RANK = 1 ] && until [ -e made ]; do sleep 0.05; done || "
        "{ rm -r outputs; mkdir outputs; touch made; }; "
        "echo m > outputs/m$LOCAL_RANK; ls $RANKLIFT_OUTPUT_DIR"
    )
    state, events = two.run(shell(script, kind, processes_per_node=2))
    assert collected(two, state.job) == of_both(two, m0="m\n", m1="m\n")
    assert "old" not in [text for _, text in lines(events)]


def test_what_was_pushed_is_no_output_of_a_job_that_runs(two: Nodes) -> None:
    push(two, big="x" * 100_000)
    job = start(two, shell("echo m > outputs/m; until [ -e go ]; do sleep 0.05; done"))
    works = [two.folder / node.name / ".ranklift/jobs" / job.job / "work" for node in two.nodes]
    until(lambda: all((work / "outputs/m").exists() for work in works))
    assert collected(two, job.job) == of_both(two, m="m\n")
    for work in works:
        (work / "go").touch()
    assert job.end().state == "SUCCEEDED"


def test_an_output_of_the_job_file_is_there_after_a_restart(two: Nodes) -> None:
    script = (
        "[ $LOCAL_RANK = 0 ] || exit 0; [ -d outputs/model ] && touch outputs/model/$RANKLIFT_RESTART_COUNT;"
        "[ $RANKLIFT_RESTART_COUNT = 1 ] || { rm -r outputs; exit 3; }"
    )
    spec = shell(script, max_restarts=1, outputs={"model": "uri_folder"}, processes_per_node=1)
    state, _ = two.run(spec)
    assert state.state == "SUCCEEDED", state.reason
    assert "node000000/model/1" in collected(two, state.job)


def test_code_whose_outputs_are_a_file_starts_no_rank(two: Nodes) -> None:
    two.code("outputs", "")
    state, events = two.run(shell("true"))
    assert state.reason.startswith(
        "no rank was started: node[000000-000001]: outputs of the pushed code is a file"
    )
    assert lines(events) == []
