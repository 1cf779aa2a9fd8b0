"""Every submit script of the training guide, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.azureml import (
    ComputeTarget,
    Environment,
    Experiment,
    PyTorchConfiguration,
    Run,
    ScriptRunConfig,
    Workspace,
)
from launch.azureml.scripts.azureml_modules import serve_azureml
from launch.errors import InputError
from launch.job.spec import JobSpec
from launch.jobfile import Pushed, make, read
from tests.launch.azureml.fake_fab import JOB, FakeFab
from tests.launch.azureml.guide_scripts import GUIDE, original
from tests.launch.azureml.in_process import imports_restored

DOCUMENTATION = Path(__file__).resolve().parents[3] / "docs" / "azureml-v1.md"
SCRIPT = {"code": "src", "experiment_name": "experiment_name", "limits": {"timeout": 2592000}}
LAUNCH = "python -m torch.distributed.launch --nproc_per_node"
GLUE = (
    f"{LAUNCH} 8 text-classification/run_glue.py --model_name_or_path bert-large-uncased-whole-word-masking "
    "--task_name mnli --do_train --do_eval --max_seq_length 128 --per_device_train_batch_size 8 "
    "--learning_rate 2e-5 --num_train_epochs 3.0 --output_dir /tmp/mnli_output"
)
EXPECTED: dict[str, dict[str, Any]] = {
    "mpi": {
        "command": "python train.py",
        "distribution": {"type": "mpi", "process_count_per_instance": 4},
        "resources": {"instance_count": 2},
    },
    "pytorch-per-process": {
        "command": "python train.py --epochs 50",
        "distribution": {"type": "pytorch", "process_count_per_instance": 4},
        "resources": {"instance_count": 2},
    },
    "torch-distributed-launch": {
        "command": f"{LAUNCH} 4 --nnodes 2 --node_rank $NODE_RANK --master_addr $MASTER_ADDR "
        "--master_port $MASTER_PORT --use_env train.py --epochs 50",
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": 2},
    },
    "one-node": {
        "command": f"{LAUNCH} 4 --use_env train.py --epochs 50",
        "resources": {"instance_count": 1},
    },
    "lightning-per-node": {
        "command": "python train.py --max_epochs 50 --gpus 2 --accelerator ddp --num_nodes 2",
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": 2},
    },
    "lightning-mpi": {
        "command": "python train.py --max_epochs 50 --gpus_per_node 4 --accelerator ddp --num_nodes 2",
        "distribution": {"type": "mpi", "process_count_per_instance": 4},
        "resources": {"instance_count": 2},
    },
    "transformers": {
        "command": GLUE,
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": 1},
    },
    "tensorflow": {
        "command": "python train.py",
        "distribution": {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 0},
        "resources": {"instance_count": 2},
    },
}
TRANSLATED = {"mpi-ja": "mpi", "transformers-ja": "transformers", "tensorflow-ja": "tensorflow"}
PROCESSES: dict[str, tuple[str, bool, int | None]] = {
    "mpi": ("mpi", False, 4),
    "pytorch-per-process": ("pytorch", False, 4),
    "torch-distributed-launch": ("pytorch", True, None),
    "one-node": ("pytorch", True, None),
    "lightning-per-node": ("pytorch", True, None),
    "lightning-mpi": ("mpi", False, 4),
    "transformers": ("pytorch", True, None),
    "tensorflow": ("tensorflow", False, 1),
}
"""Kind, whether the command starts a node's processes itself, processes a node."""
LIGHTNING = "import lightning\n"


def run_sample(name: str) -> Run:
    """Runs a script of the guide and gives its run; it is submitted for those that stop short of it."""
    ws = Workspace.from_config()
    scope: dict[str, Any] = {
        "ws": ws,
        "compute_target": ComputeTarget(ws, "gpu-cluster"),
        "pytorch_env": Environment.get(ws, "AzureML-PyTorch-1.6-GPU"),
        "ScriptRunConfig": ScriptRunConfig,
    }
    with imports_restored():
        serve_azureml()
        exec(compile(original(name), name, "exec"), scope)
    run = scope.get("run") or Experiment(ws, "experiment_name").submit(scope["run_config"])
    assert isinstance(run, Run)
    return run


def spec_of(job: str, folder: Path, nodes: int) -> JobSpec:
    """What the job file launches, as the ``launch`` task reads it."""
    path = folder / "job.yml"
    path.write_text(job)
    file = read(path)
    assert file.notice is None
    assert file.code is not None
    files = {entry.relative_to(file.code).as_posix() for entry in file.code.rglob("*")}
    source = (file.code / "train.py").read_text()
    return make(
        file,
        nodes=nodes,
        identifier=JOB,
        home="/home/azureuser",
        pushed=Pushed("0123456789abcdef", files, {}),
        source=source,
    ).spec


def test_no_script_of_the_guide_is_left_out() -> None:
    assert {path.stem for path in GUIDE.glob("*.txt")} == {*EXPECTED, *TRANSLATED}


@pytest.mark.parametrize("name", [*EXPECTED, *TRANSLATED])
def test_a_script_of_the_guide_launches_what_it_says(fab: FakeFab, tmp_path: Path, name: str) -> None:
    meant = TRANSLATED.get(name, name)
    if meant == "lightning-per-node":
        Path("src/train.py").write_text(LIGHTNING)
    run = run_sample(name)
    assert run.id == JOB
    (call,) = fab.calls
    source = str(Path.cwd() / "src")
    job = yaml.safe_load(call["job"])
    stored = re.search(r"curated_env_name = '(.*)'", original(name))
    assert job.pop("environment") == f"azureml:{stored[1] if stored else 'AzureML-PyTorch-1.6-GPU'}@latest"
    assert job == SCRIPT | {"code": source} | EXPECTED[meant]
    words = ["launch", "--name", "experiment_name", "--allow-path", source]
    words += ["--detach", "--json", "--stack", "gpu-cluster"]
    assert fab.words("launch") == [words]
    spec = spec_of(call["job"], tmp_path, EXPECTED[meant]["resources"]["instance_count"])
    assert (spec.kind, spec.per_node, spec.processes_per_node) == PROCESSES[meant]
    assert (spec.command, spec.shell) == ((EXPECTED[meant]["command"],), True)
    assert (spec.experiment, spec.timeout_s) == ("experiment_name", 2592000)


def test_what_does_not_carry_over_is_told_once(
    fab: FakeFab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKLIFT_STACK", "other")
    run_sample("mpi")
    run_sample("mpi")
    ran = capsys.readouterr()
    assert ran.out == ""
    assert ran.err == (
        "notice: compute target gpu-cluster: runs go to stack other, which RANKLIFT_STACK names\n"
    )


def test_the_documentations_own_script_runs(fab: FakeFab, monkeypatch: pytest.MonkeyPatch) -> None:
    fab.file("outputs/node000000/model.pt", "weights")
    (script,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENTATION.read_text(), re.MULTILINE | re.DOTALL)
    with imports_restored():
        serve_azureml()
        exec(compile(script, "docs", "exec"), {})
    assert Path("results/outputs/model.pt").read_text() == "weights"
    allowed = ["--allow-path", str(Path.cwd() / "src")]
    words = ["launch", "--name", "digits", *allowed, "--detach", "--json", "--stack", "dev"]
    assert fab.words("launch") == [words]


def test_a_torchrun_of_a_script_config_is_given_the_jobs_nodes(fab: FakeFab, tmp_path: Path) -> None:
    command = "torchrun --nproc_per_node 2 train.py"
    config = ScriptRunConfig(
        "src", command=command, distributed_job_config=PyTorchConfiguration(node_count=2)
    )
    Experiment(Workspace.from_config(), "digits").submit(config)
    job = fab.calls[0]["job"]
    options = "--nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT"
    assert spec_of(job, tmp_path, 2).command == (f"torchrun {options} --nproc_per_node 2 train.py",)
    with pytest.raises(InputError, match=r"command = '--standalone': would train on each of the 2 nodes"):
        spec_of(job.replace("torchrun --", "torchrun --standalone --"), tmp_path, 2)
