"""An MPI that is added: one file and an entry in the registry, here and in the code that nodes get."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from launch.job.spec import JobSpec
from launch.remote.mpi.registry import MPIS
from tests.launch.remote.mpi import toy_mpi
from tests.launch.standin import REMOTE, Nodes, lines

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]
JOB = JobSpec("t", "mpi", ("sh", "-c", 'echo "$RANK $OMPI_COMM_WORLD_SIZE $TOY_RANK"'), processes_per_node=2)
ENTRY = '\nfrom launch.remote.mpi.toy import Toy\nMPIS["toympi"] = Toy()\n'


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """One node, whose only mpirun is the toy's."""
    monkeypatch.setitem(MPIS, "toympi", toy_mpi.Toy())
    nodes = Nodes(tmp_path, [2])
    (nodes.bin / "mpirun").write_text(toy_mpi.MPIRUN)
    (nodes.bin / "mpirun").chmod(0o755)
    return nodes


def test_starts_the_ranks_of_a_job_to_its_end(nodes: Nodes, tmp_path: Path) -> None:
    code = tmp_path / "code-with-toy"
    shutil.copytree(REMOTE, code)
    shutil.copy(toy_mpi.__file__, code / "mpi/toy.py")
    with (code / "mpi/registry.py").open("a") as registry:
        registry.write(ENTRY)
    pushed = tmp_path / "node000000/.ranklift/remote/hash"
    pushed.unlink()
    pushed.symlink_to(code)
    state, events = nodes.run(JOB)
    assert (state.state, state.reason) == ("SUCCEEDED", "")
    assert sorted(lines(events)) == [(0, "0 2 0"), (1, "1 2 1")]


def test_of_a_node_that_does_not_know_it_is_named(nodes: Nodes) -> None:
    state, _ = nodes.run(JobSpec("t", "mpi", ("hostname",), mpi="toympi"))
    assert state.state == "FAILED"
    assert "toympi (unknown) is required" in state.reason
