"""What is made of a line and its options by ``launch.mpi``, ``launch.torch`` and ``launch.tensorflow``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.inventory import Node
from launch.errors import InputError
from launch.job.spec import JobSpec
from launch.launchers.registry import LAUNCHERS
from playbooks.jobs.job_options import Request, job_spec

NODES = [Node(f"node{n:06x}", n, f"10.0.0.{n + 4}", "127.0.0.1", 50000 + n, 8, "running") for n in range(3)]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "lit.py").write_text("import lightning\n")
    return tmp_path


Chosen = tuple[str, dict[str, Any]]


def by(launcher: str, **options: Any) -> Chosen:
    """A launcher and what is given of its own options."""
    return launcher, options


def spec(
    code: Path, line: str, kind: Chosen, *, nodes: Sequence[Node] = NODES, **request: Any
) -> tuple[JobSpec, tuple[str, ...]]:
    fields: dict[str, Any] = {
        **{"env": (), "name": None, "python": "python3", "timeout": None},
        **request,
    }
    name, options = kind
    launcher = LAUNCHERS[name]
    defaults = {
        one.name: one.read(one.name, one.default) if isinstance(one.default, str) else one.default
        for one in launcher.options
    }
    request_made = Request(line, **fields, options={**defaults, **options})
    return job_spec(request_made, launcher, nodes, "0123", code, "/home/azureuser")


def test_without_a_count_there_is_one_process_a_node(code: Path) -> None:
    job, notices = spec(code, "train.py --a", by("pytorch"))
    assert (job.command, job.shell, job.per_node, job.processes_per_node) == (
        *(("train.py", "--a"), False, False, 1),
    )
    assert job.requires == ("torch",)
    assert notices == ()


def test_one_process_for_each_slot_is_each_nodes_own_number_which_torchrun_does_not_know(code: Path) -> None:
    uneven = [replace(node, slots=slots) for node, slots in zip(NODES, (2, 1, 2), strict=True)]
    job, _ = spec(code, "train.py", by("pytorch", nproc_per_node="auto"), nodes=uneven)
    assert job.processes_per_node is None
    with pytest.raises(InputError, match="'auto': torchrun starts as many on every node"):
        spec(code, "train.py", by("pytorch", nproc_per_node="auto", torchrun=True), nodes=uneven)


def test_of_another_python_nothing_is_required(code: Path) -> None:
    for line in ("/opt/env/bin/python train.py", "conda run -n env python train.py"):
        assert spec(code, line, by("mpi"))[0].requires == ()


def test_what_modules_of_the_code_import_is_required_too(code: Path) -> None:
    (code / "net").mkdir()
    (code / "net/__init__.py").write_text("from .layers import Layer\n")
    (code / "net/layers.py").write_text("import torch\n")
    (code / "run.py").write_text("import net\n")
    assert spec(code, "run.py", by("pytorch"))[0].requires == ("torch",)


def test_a_script_that_starts_the_others_itself_runs_once_a_node_and_that_is_told(code: Path) -> None:
    job, notices = spec(code, "lit.py --num_nodes 3", by("pytorch"))
    assert (job.per_node, job.processes_per_node) == (True, None)
    (notice,) = notices
    assert notice.startswith("one process on each node: Lightning, which the script imports, starts ")
    job, notices = spec(code, "lit.py", by("pytorch", nproc_per_node="2"))
    assert (job.per_node, job.processes_per_node, notices) == (False, 2, ())
    job, _ = spec(code, "lit.py", by("mpi"))
    assert (job.per_node, job.processes_per_node) == (False, 1)


def test_a_launcher_in_the_line_goes_not_with_a_count(code: Path) -> None:
    job, _ = spec(code, "torchrun --nproc-per-node 8 train.py", by("pytorch"))
    assert (job.per_node, job.shell) == (True, False)
    for kind in (by("pytorch", nproc_per_node="2"), by("mpi", nproc_per_node="2")):
        with pytest.raises(
            InputError, match=r"--nproc-per-node = 2: cannot be combined with this command: torchrun"
        ):
            spec(code, "torchrun train.py", kind)


ADDED = ("--nnodes", "3", "--node-rank", "$NODE_RANK", "--master-addr", "$MASTER_ADDR")


def test_a_launcher_in_the_line_is_given_the_jobs_nodes(code: Path) -> None:
    job, notices = spec(code, "conda run -n x torchrun --nproc_per_node 2 train.py", by("pytorch"))
    assert job.command[:11] == ("conda", "run", "-n", "x", "torchrun", *ADDED)
    assert job.command[-3:] == ("--nproc_per_node", "2", "train.py")
    assert job.per_node
    assert [notice.partition(":")[0] for notice in notices] == ["one process on each node", "torchrun"]
    job, notices = spec(code, "cd . && torchrun train.py", by("pytorch", per_node=True))
    assert job.command[0].startswith(f"cd . && torchrun {' '.join(ADDED)} --master-port $MASTER_PORT train")
    assert len(notices) == 1
    assert spec(code, "torchrun a.py", by("pytorch"), nodes=NODES[:1])[0].command == ("torchrun", "a.py")
    assert "--nnodes" in spec(code, "torchrun a.py", by("mpi"))[0].command
    assert "--nnodes" not in spec(code, "torchrun a.py", by("pytorch"), env=("PET_NNODES=3",))[0].command


def test_a_launcher_in_the_line_that_contradicts_the_nodes_is_refused(code: Path) -> None:
    for kind in (by("pytorch"), by("pytorch", per_node=True), by("mpi"), by("tensorflow")):
        with pytest.raises(InputError, match=r"^line = '--nnodes=2': the job has 3 nodes; write --nnodes 3 "):
            spec(code, "torchrun --nnodes=2 train.py", kind)
    with pytest.raises(InputError, match=r"^line = 'mpirun': mpirun starts the ranks of this job already"):
        spec(code, "mpirun -np 2 a.out", by("mpi"))
    with pytest.raises(InputError, match=r"^--torchrun: cannot be combined with this command: torchrun"):
        spec(code, "torchrun train.py", by("pytorch", torchrun=True))


def test_torchrun_and_lines_for_the_nodes_shell(code: Path) -> None:
    job, _ = spec(code, "train.py", by("pytorch", nproc_per_node="auto", torchrun=True))
    assert job.command[:5] == ("torchrun", "--nnodes", "3", "--nproc-per-node", "8")
    assert job.per_node
    job, _ = spec(code, "python train.py  $NODE_RANK", by("pytorch", per_node=True))
    assert (job.command, job.shell, job.per_node) == (("python train.py  $NODE_RANK",), True, True)
    job, _ = spec(code, "run.sh", by("pytorch", per_node=True))
    assert (job.command, job.shell) == (("run.sh",), False)


def test_a_fixed_number_of_nodes_is_the_jobs_own(code: Path) -> None:
    job, _ = spec(code, "train.py", by("pytorch", torchrun=True, nnodes="3"))
    assert job.command == spec(code, "train.py", by("pytorch", torchrun=True))[0].command
    assert spec(code, "train.py", by("pytorch", nnodes="3"))[0].command == ("train.py",)
    for torchrun in (True, False):
        with pytest.raises(
            InputError,
            match=r"--nnodes = '2': the job has 3 nodes; choose 2 of them with --nodes, or leave --nnodes",
        ):
            spec(code, "train.py", by("pytorch", torchrun=torchrun, nnodes="2"))


def test_mpi_and_its_arguments(code: Path) -> None:
    job, _ = spec(code, "train.py", by("mpi", mpi="mpich", mpirun_args=("-iface", "a b")))
    assert (job.kind, job.mpi, job.mpi_args) == ("mpi", "mpich", ("-iface", "a b"))
    for count, args in (("2", ("-np", "1")), ("auto", ("-np", "3"))):
        with pytest.raises(InputError, match=r"--mpirun-args = '-np \d': the job has (6|24) ranks"):
            spec(code, "train.py", by("mpi", nproc_per_node=count, mpirun_args=args))
    with pytest.raises(InputError, match=r"--mpi = 'lam': is not a known MPI; use one of openmpi, mpich"):
        spec(code, "train.py", by("mpi", mpi="lam"))


def test_tensorflows_tasks(code: Path) -> None:
    job, _ = spec(code, "train.py", by("tensorflow", workers=2, parameter_servers=1, chief=True))
    assert (job.kind, job.workers, job.parameter_servers, job.chief) == ("tensorflow", 2, 1, True)
    assert spec(code, "train.py", by("tensorflow"))[0].workers is None


def test_restarts_are_the_jobs_but_torchruns_own_over_a_range_of_nodes(code: Path) -> None:
    job, _ = spec(code, "train.py", by("pytorch", torchrun=True), max_restarts=3, grace="1m")
    assert (job.max_restarts, job.min_nodes, job.grace_s) == (3, None, 60)
    assert "--max-restarts" not in job.command
    job, _ = spec(code, "train.py", by("pytorch", torchrun=True, nnodes="2:4"), max_restarts=3)
    assert (job.max_restarts, job.min_nodes) == (0, 2)
    assert " ".join(job.command).endswith("--max-restarts 3 train.py")
    job, _ = spec(code, "train.py", by("pytorch", torchrun=True, nnodes="2:4"))
    assert "--max-restarts" not in job.command


def test_a_range_in_a_line_of_ones_own_is_seen_and_restarts_go_into_that_line(code: Path) -> None:
    line = "torchrun --nnodes 2:3 --rdzv-backend c10d train.py"
    assert spec(code, line, by("pytorch"))[0].min_nodes == 2
    assert spec(code, f"cd . && {line}", by("pytorch", per_node=True))[0].min_nodes == 2
    with pytest.raises(InputError, match=r"max_restarts = 3: .*give torchrun --max-restarts 3"):
        spec(code, line, by("pytorch"), max_restarts=3)


@pytest.mark.parametrize(
    ("line", "operator"),
    [
        ("train.py > log", ">"),
        ("train.py 2>&1 | tee log", "2>&1"),
        ("train.py|tee log", "|"),
        ("train.py && touch done", "&&"),
        ("train.py --name 'a;b'; touch done", ";"),
        ("train.py &", "&"),
        ("train.py <in", "<"),
        ("train.py --url http://h/?a=1&b=2", "&"),
    ],
)
@pytest.mark.parametrize("kind", ["mpi", "pytorch", "tensorflow"])
def test_an_operator_of_a_shell_is_refused_with_the_forms_that_have_one(
    code: Path, kind: str, line: str, operator: str
) -> None:
    with pytest.raises(InputError) as caught:
        spec(code, line, by(kind))
    assert caught.value.problem.startswith(f"{operator} would be an argument of the script")
    assert "\"bash -c '…'\" or the command of a job file" in caught.value.remedy


@pytest.mark.parametrize(
    "line",
    ["bash -c 'python train.py > log 2>&1; touch done'", "train.py --a 'x|y' \";\" \\& --layers (1,2) '#'"],
)
def test_a_quoted_operator_is_an_argument(code: Path, line: str) -> None:
    job, _ = spec(code, line, by("mpi"))
    assert job.command == tuple(shlex.split(line))


def test_a_line_that_a_shell_reads_may_have_operators(code: Path) -> None:
    line = "torchrun --nnodes 3 train.py 2>&1 | tee $NODE_RANK.log"
    job, _ = spec(code, line, by("pytorch", per_node=True))
    assert (job.shell, job.per_node) == (True, True)
