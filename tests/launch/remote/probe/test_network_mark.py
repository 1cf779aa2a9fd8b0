"""A node's mark of its networks changes with what decides over InfiniBand, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.remote.probe.network_mark import network_mark

BEFORE = {"PATH": "/usr/bin:/bin", "HOME": "/home/me", "LANG": "C"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "variable",
    [
        *("NCCL_NET=Socket", "NCCL_IB_HCA=mlx5_9", "UCX_TLS=tcp", "OMPI_MCA_pml=ob1", "FI_PROVIDER=tcp"),
        *("I_MPI_FABRICS=shm", "LD_PRELOAD=/tmp/x.so", "PATH=/opt/bin:/usr/bin:/bin", "HCOLL_MAIN_IB=x"),
    ],
)
def test_a_variable_that_a_login_sets_counts(variable: str) -> None:
    name, _, value = variable.partition("=")
    assert network_mark({**BEFORE, name: value}, {}) != network_mark(BEFORE, {})


@pytest.mark.parametrize("name", ["LANG", "OMPI_MCA_ess_base_jobid", "PMIX_ID", "I_MPI_HYDRA_UUID", "TMPDIR"])
def test_what_each_launch_has_of_its_own_does_not(name: str) -> None:
    assert network_mark({**BEFORE, name: "7"}, {}) == network_mark(BEFORE, {})


def test_the_jobs_own_variables_are_compared_elsewhere() -> None:
    assert network_mark({**BEFORE, "NCCL_NET": "IB"}, {"NCCL_NET": "IB"}) == network_mark(BEFORE, {})


@pytest.mark.parametrize("name", [".nccl.conf", ".openmpi/mca-params.conf", "ucx.conf"])
def test_a_settings_file_counts_also_behind_a_link(home: Path, name: str) -> None:
    before = network_mark(BEFORE, {})
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).symlink_to(home / "target")
    (home / "target").write_text("first")
    first = network_mark(BEFORE, {})
    (home / "target").write_text("other")
    assert len({before, first, network_mark(BEFORE, {})}) == 3


def test_another_mpirun_that_is_found_first_counts(home: Path) -> None:
    env = {"PATH": str(home)}
    before = network_mark(env, {})
    (home / "mpirun").write_text("#!/bin/sh")
    (home / "mpirun").chmod(0o755)
    assert network_mark(env, {}) != before
