"""Jobs of the same code: each works in a folder of its own on every node, and the code stays as pushed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from launch.job.spec import Kind
from tests.launch.standin import Nodes, lines, shell, start, until
from tests.launch.whole_jobs.test_restarting import runner_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
BADLY = "echo more >> a.py; rm b.py; chmod 700 c.sh; echo new > mine; mkdir -p d; mv e.txt d/"
"""What a job may do to its code."""


@pytest.fixture
def nodes(nodes: Nodes) -> Nodes:
    for name in ("a.py", "b.py", "c.sh", "e.txt"):
        nodes.code(name, f"# {name}\n")
    return nodes


def code_of(nodes: Nodes) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(nodes.folder)): (result.st_mode, result.st_mtime_ns, path.read_bytes())
        for node in nodes.nodes
        for path in (nodes.folder / node.name / ".ranklift/snapshots/code").iterdir()
        for result in [path.lstat()]
    }


def left(nodes: Nodes, job: str, node: int = 0) -> list[str]:
    """What is left of the job's working folder on a node."""
    work = nodes.folder / nodes.nodes[node].name / ".ranklift/jobs" / job / "work"
    found = (str(path.relative_to(work)) for path in work.rglob("*"))
    return sorted(path for path in found if path != "outputs")


@KINDS
def test_the_code_stays_as_it_was_pushed_whatever_jobs_do_to_theirs(nodes: Nodes, kind: Kind) -> None:
    before = code_of(nodes)
    for _ in range(2):
        state, _ = nodes.run(shell(f"{BADLY}; cat a.py", kind))
        assert state.state == "SUCCEEDED", state.reason
        for node in range(3):
            assert left(nodes, state.job, node) == ["a.py", "c.sh", "d", "d/e.txt", "mine"]
    assert code_of(nodes) == before


def test_jobs_that_run_at_once_do_not_meet(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, [4])
    script = (
        "echo $RANKLIFT_JOB_ID > checkpoint.pt; echo $RANKLIFT_JOB_ID > outputs/result; touch there; "
        "until [ -e go ]; do sleep 0.05; done; cat checkpoint.pt outputs/result"
    )
    jobs = [start(nodes, shell(script, processes_per_node=2)) for _ in range(2)]
    folders = [tmp_path / "node000000/.ranklift/jobs" / job.job for job in jobs]
    until(lambda: all((folder / "work/there").exists() for folder in folders))
    for job, folder in zip(jobs, folders, strict=True):
        (folder / "work/go").touch()
        assert job.end().state == "SUCCEEDED"
        assert [text for _, text in lines(job.events)] == [job.job] * 4
        assert (folder / "outputs/result").read_text().strip() == job.job


@KINDS
def test_an_untouched_one_disappears_with_its_job(nodes: Nodes, kind: Kind) -> None:
    state, _ = nodes.run(shell("cat a.py > outputs/copy", kind, processes_per_node=1))
    for node in nodes.nodes:
        job = nodes.folder / node.name / ".ranklift/jobs" / state.job
        assert [path.name for path in (job / "work").iterdir()] == ["outputs"]
        assert not (job / "copied").exists()
        assert (job / "outputs/copy").read_text() == "# a.py\n"


@pytest.mark.parametrize("fails", [1, 9])
def test_a_restart_finds_its_checkpoint_and_the_rest_goes_at_the_jobs_end(nodes: Nodes, fails: int) -> None:
    script = (
        "cat checkpoint.pt || rm b.py; ls; "
        f"echo after $RANKLIFT_RESTART_COUNT > checkpoint.pt; [ $RANKLIFT_RESTART_COUNT -ge {fails} ]"
    )
    state, events = nodes.run(shell(script, max_restarts=2))
    printed = [text for rank, text in lines(events) if rank == 0]
    assert "after 0" in printed
    assert printed.count("a.py") == printed.count("c.sh") == state.restarts + 1
    assert "b.py" not in printed
    for node in range(3):
        until(lambda node=node: left(nodes, state.job, node) == ["checkpoint.pt"])  # type: ignore[misc]


@KINDS
def test_a_killed_runners_is_cleared_by_the_sweep(nodes: Nodes, kind: Kind) -> None:
    job = start(nodes, shell("touch mine; sleep 60", kind))
    until(lambda: left(nodes, job.job, 2).count("mine"))
    os.kill(runner_of(nodes, 2, job.job), signal.SIGKILL)
    assert job.end().state == "FAILED"
    assert left(nodes, job.job, 2) == ["mine"]


def test_nodes_without_the_snapshot_are_named_at_once_and_no_rank_starts(nodes: Nodes) -> None:
    for node in nodes.nodes[1:]:
        code = nodes.folder / node.name / ".ranklift/snapshots/code"
        code.rename(code.with_name("gone"))
    state, events = nodes.run(shell("touch mine"))
    assert state.state == "FAILED"
    where = f"the pushed code ~/.ranklift/snapshots/{nodes.seal()} is not on this node: push again"
    assert state.reason == f"no rank was started: node[000001-000002]: {where}"
    assert lines(events) == []
    assert left(nodes, state.job) == []


@KINDS
def test_no_code_is_left_of_a_job_that_ended_before_its_ranks_started(nodes: Nodes, kind: Kind) -> None:
    job = start(nodes, shell("true", kind, setup="touch made; sleep 60"))
    until(lambda: all(left(nodes, job.job, node).count("made") for node in range(3)))
    nodes.cancel(job.job)
    assert job.end().state == "CANCELLED"
    assert [left(nodes, job.job, node) for node in range(3)] == [[], [], []]
    for node in nodes.nodes:
        (aside,) = (nodes.folder / node.name / ".ranklift/jobs" / job.job).glob("work.*")
        assert [path.name for path in aside.iterdir()] == ["made"]


def test_the_folder_of_a_job_without_code_is_its_own_too(nodes: Nodes) -> None:
    state, _ = nodes.run(shell("echo x > mine", snapshot=None))
    assert left(nodes, state.job) == ["mine"]
