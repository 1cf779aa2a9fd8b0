"""Jobs in Docker's containers on this machine, reached as a cluster is: by ssh, from start to collect."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.client.cancel import end_job
from launch.job.spec import Kind
from launch.results.collect import collect
from tests.environments.docker_engine import Engine
from tests.environments.in_containers import assert_nothing_left, runners_of
from tests.environments.ssh_nodes import SshNodes
from tests.launch.standin import left_of, lines, remarks, shell, start, until

pytestmark = [
    pytest.mark.environments,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("nothing_runs_on", "no_docker_container_is_left"),
]
KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
STUBBORN = "trap '' TERM; (setsid sleep 1000 &); echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def no_docker_container_is_left(engine: Engine) -> Iterator[None]:
    """Fails where the engine has a container after the test."""
    yield
    assert engine.containers() == []


@pytest.fixture
def nodes(tmp_path: Path, engine: Engine, image_file: Path) -> Iterator[SshNodes]:
    """Two nodes, with 2 slots and 1."""
    made = SshNodes(tmp_path, [2, 1], engine.program, engine.host)
    made.put("image.tar", image_file)
    with made.served():
        yield made


def ready(job: object, count: int) -> None:
    until(lambda: sum(text == "ready" for _, text in lines(job.events)) == count, 40)  # type: ignore[attr-defined]


@pytest.mark.for_every_change
@KINDS
def test_a_job_sees_its_variables_and_its_logs_and_outputs_are_collected(
    nodes: SshNodes, tmp_path: Path, kind: Kind
) -> None:
    line = 'echo "$RANK $WORLD_SIZE $MINE $GREETING"; echo kept > "$RANKLIFT_OUTPUT_DIR/result"'
    state, events = nodes.run(shell(line, kind, processes_per_node=None, env={"MINE": "two\nlines 'ü'"}))
    assert state.state == "SUCCEEDED", (state, remarks(events))
    said = {rank: f"{rank} 3 two\nlines 'ü' from the image\n" for rank in range(3)}
    report = collect(state.job, nodes.head, tmp_path / "results", remote="hash")
    assert report.is_complete
    logs = {path.name: path.read_text() for path in (tmp_path / "results").glob("**/rank-*.log")}
    assert logs == {f"rank-{rank}.log": text for rank, text in said.items()}
    outputs = [path.read_text() for path in (tmp_path / "results").glob("**/result")]
    assert outputs == ["kept\n"] * len(outputs) != []


@KINDS
def test_a_failed_rank_ends_the_others(nodes: SshNodes, kind: Kind) -> None:
    state, _ = nodes.run(shell(f"if [ $RANK = 1 ]; then exit 7; fi; {STUBBORN}", kind, grace_s=1.0))
    assert (state.state, state.exit_status) == ("FAILED", 7)
    assert_nothing_left(state.job)


@KINDS
def test_a_cancel_ends_ranks_that_ignore_sigterm_and_their_daemons(nodes: SshNodes, kind: Kind) -> None:
    job = start(nodes, shell(STUBBORN, kind, grace_s=1.0))
    ready(job, 2)
    assert end_job(job.job, nodes.head, remote="hash").state.state == "CANCELLED"
    job.thread.join(30)
    assert_nothing_left(job.job)


def test_a_time_limit_ends_the_job(nodes: SshNodes) -> None:
    state, _ = nodes.run(shell(STUBBORN, timeout_s=4.0, grace_s=1.0))
    assert (state.state, state.exit_status) == ("FAILED", 124)
    assert_nothing_left(state.job)


@KINDS
def test_a_killed_runner_ends_the_job(nodes: SshNodes, kind: Kind) -> None:
    job = start(nodes, shell(STUBBORN, kind, grace_s=1.0))
    ready(job, 2)
    os.kill(runners_of(job.job)[-1], signal.SIGKILL)
    job.thread.join(60)
    assert not job.thread.is_alive()
    assert_nothing_left(job.job)


@KINDS
def test_a_killed_supervisor_ends_the_job(nodes: SshNodes, kind: Kind) -> None:
    job = start(nodes, shell(STUBBORN, kind, grace_s=1.0))
    ready(job, 2)
    state = json.loads((nodes.job_folder(0, job.job) / "state.json").read_text())
    os.kill(state["supervisor"]["pid"], signal.SIGKILL)
    until(lambda: not left_of(job.job), 30)
    assert_nothing_left(job.job)


def test_a_node_that_is_cut_off_ends_its_own_containers(nodes: SshNodes, engine: Engine) -> None:
    job = start(nodes, shell(STUBBORN, grace_s=1.0))
    ready(job, 2)
    nodes.cut(1)
    until(lambda: not job.thread.is_alive(), 60)
    until(lambda: engine.containers() == [] and not left_of(job.job), 60)
    assert_nothing_left(job.job)
