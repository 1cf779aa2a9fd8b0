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
        *(
            "OMPI_MCA_mca_base_env_list=UCX_TLS=tcp",
            "PYTHONUSERBASE=/tmp/x",
            "LD_AUDIT=/tmp/x.so",
            "MLX5_X=1",
        ),
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


@pytest.mark.parametrize(
    "name", [".nccl.conf", ".openmpi/mca-params.conf", "ucx.conf", ".prte/mca-params.conf"]
)
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


@pytest.mark.parametrize(
    ("name", "value", "file"),
    [
        ("NCCL_CONF_FILE", "{home}/x.conf", "x.conf"),
        ("OMPI_MCA_mca_base_param_files", "/none,{home}/x.conf", "x.conf"),
        ("UCX_CONFIG_DIR", "{home}/dir", "dir/ucx.conf"),
        ("OPAL_PREFIX", "{home}/mpi", "mpi/etc/openmpi-mca-params.conf"),
    ],
)
def test_the_content_of_a_file_that_a_variable_names_counts(
    home: Path, name: str, value: str, file: str
) -> None:
    env = {**BEFORE, name: value.format(home=home)}
    before = network_mark(env, {})
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text("NCCL_NET=Socket")
    assert network_mark(env, {}) != before


@pytest.mark.parametrize(
    ("package", "counts"),
    [("usercustomize.py", True), ("x.pth", True), ("torch", True), ("nvidia", True), ("__pycache__", False)],
)
def test_a_package_of_the_users_own_counts_where_it_trains_or_runs_at_each_start(
    home: Path, package: str, counts: bool
) -> None:
    folder = home / ".local/lib/python3.11/site-packages"
    folder.mkdir(parents=True)
    before = network_mark(BEFORE, {})
    (folder / package).write_text("import os")
    assert (network_mark(BEFORE, {}) != before) is counts
