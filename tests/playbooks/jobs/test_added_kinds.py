"""A launcher and an MPI that a user's fabfile adds to the registries, seen from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.playbooks.jobs.test_launch_file import Fab, fab, own

__all__ = ["fab", "own"]

FABFILE = """
from launch.launchers.registry import LAUNCHERS
from launch.remote.mpi.registry import MPIS
from tests.launch.launchers.toy_launcher import Toy
from tests.launch.remote.mpi.toy_mpi import Toy as ToyMpi

LAUNCHERS["toy"] = Toy()
MPIS["toympi"] = ToyMpi()
"""


@pytest.fixture(autouse=True)
def added(own: Path) -> None:
    fabfile = own / "fabfile.py"
    fabfile.write_text(FABFILE + fabfile.read_text())


def test_the_mpis_command_line_is_shown(fab: Fab) -> None:
    ran = fab("launch.mpi", "src/train.py", "--source", ".", "--mpi", "toympi", "--dry-run")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "env TOY_VERBOSE=1 mpirun -n 4 sh -c" in " ".join(ran.stdout.split())


def test_an_mpi_that_is_not_there_is_refused_with_those_that_are(fab: Fab) -> None:
    ran = fab("launch.mpi", "src/train.py", "--source", ".", "--mpi", "lam", "--dry-run")
    assert ran.returncode == 2
    assert "use one of openmpi, mpich, intelmpi, toympi" in ran.stderr


def test_the_launcher_has_a_task_with_its_own_options(fab: Fab) -> None:
    shown = fab("launch.toy", "--help").stdout
    assert "--loud" in shown
    assert "whether ranks are loud" in shown
    assert "--cancel-on-interrupt" in shown
    refused = fab("launch.toy", "src/train.py", "--loud")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--loud: is for a --word; give one, or leave it out" in refused.stderr
    planned = fab("launch.toy", "src/train.py", "--source", ".", "--word", "hello", "--dry-run")
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "TOY_LEADER=node000000" in planned.stdout
    assert "src/train.py hello" in planned.stdout
