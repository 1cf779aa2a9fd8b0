"""A launcher that is added from outside the package: one file and an entry in the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.errors import InputError
from launch.job.spec import JobSpec
from launch.jobfile import read
from launch.launchers.registry import LAUNCHERS
from tests.launch.launchers.toy_launcher import Toy
from tests.launch.standin import Nodes, lines

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

SHOW = 'echo "$RANK of $WORLD_SIZE under $TOY_LEADER, $TOY_RANKS_EACH each, ${OMPI_COMM_WORLD_RANK-no MPI}"'


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAUNCHERS, "toy", Toy())


def test_runs_a_job_to_its_end(nodes: Nodes) -> None:
    state, events = nodes.run(JobSpec("t", "toy", ("sh", "-c", SHOW), processes_per_node=1))
    assert (state.state, state.kind) == ("SUCCEEDED", "toy")
    assert sorted(lines(events)) == [
        (rank, f"{rank} of 3 under node000000, 1 each, no MPI") for rank in range(3)
    ]


def test_sets_variables_that_a_user_may_not(nodes: Nodes) -> None:
    with pytest.raises(InputError, match="TOY_LEADER: is set by the launcher for every rank"):
        JobSpec("t", "toy", ("hostname",), env={"TOY_LEADER": "me"})
    assert JobSpec("t", "mpi", ("hostname",), env={"TOY_LEADER": "me"}).env == {"TOY_LEADER": "me"}


def test_takes_no_option_of_others() -> None:
    with pytest.raises(InputError, match=r"mpi_args = .*: is for mpi jobs; leave it out"):
        JobSpec("t", "toy", ("hostname",), mpi_args=("-v",))


def test_is_a_type_of_distribution_in_job_files(tmp_path: Path) -> None:
    path = tmp_path / "job.yml"
    path.write_text("command: hostname\ndistribution: {type: toy, process_count_per_instance: 2}\n")
    distribution = read(path).distribution
    assert distribution is not None
    assert (distribution.kind, distribution.processes) == ("toy", 2)
    path.write_text("command: hostname\ndistribution: {}\n")
    with pytest.raises(InputError, match="add type: mpi, pytorch, tensorflow or toy"):
        read(path)
