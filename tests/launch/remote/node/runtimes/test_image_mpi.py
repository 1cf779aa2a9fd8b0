"""Whether ranks in an image can join the node's mpirun."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from launch.remote.node.prepare import Unfit
from launch.remote.node.runtimes.image_mpi import check_mpi

MPIRUN = "openmpi-4 Open MPI 4.1.4"


def container(*, passes_descriptors: bool) -> Any:
    return SimpleNamespace(name="docker", title="pytorch:24", passes_descriptors=passes_descriptors)


@pytest.mark.parametrize("printed", [b"mpirun (Open MPI) 4.1.9\n", b"", b"\xff"])
def test_an_image_with_that_mpi_or_none_is_taken(printed: bytes) -> None:
    check_mpi(container(passes_descriptors=False), MPIRUN, lambda _: printed)


def test_an_image_with_another_is_refused_with_both() -> None:
    with pytest.raises(Unfit, match=r"pytorch:24 has Open MPI 5\.0\.3, the node's mpirun is Open MPI 4\."):
        check_mpi(container(passes_descriptors=True), MPIRUN, lambda _: b"mpirun (Open MPI) 5.0.3\n")


def test_a_runtime_that_passes_no_descriptors_is_refused_where_ranks_need_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PMI_FD", "7")
    check_mpi(container(passes_descriptors=True), "mpich MPICH 4.2", lambda _: b"")
    with pytest.raises(
        Unfit, match=r"runtime = docker: .* by which ranks of MPICH 4\.2 reach their launcher"
    ):
        check_mpi(container(passes_descriptors=False), "mpich MPICH 4.2", lambda _: b"")
