"""The v1 classes against azureml-core itself, which lives in an environment of its own."""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import launch.azureml
import launch.azureml.conda_dependencies
import launch.azureml.runconfig
from launch.azureml import (
    AmlCompute,
    ComputeTarget,
    CondaDependencies,
    DockerConfiguration,
    Environment,
    Experiment,
    MpiConfiguration,
    NotSupported,
    PyTorchConfiguration,
    Run,
    RunConfiguration,
    ScriptRun,
    ScriptRunConfig,
    TensorflowConfiguration,
    UserErrorException,
    Workspace,
)
from launch.azureml.command_line import joined

pytestmark = pytest.mark.frameworks

ORACLE = Path(__file__).resolve().parents[2] / ".venv-oracles" / "bin" / "python"
CLASSES = {
    "MpiConfiguration": MpiConfiguration,
    "PyTorchConfiguration": PyTorchConfiguration,
    "TensorflowConfiguration": TensorflowConfiguration,
    "DockerConfiguration": DockerConfiguration,
    "RunConfiguration": RunConfiguration,
    "ScriptRunConfig": ScriptRunConfig,
    "Experiment": Experiment,
    "Run": Run,
    "ScriptRun": ScriptRun,
    "Environment": Environment,
    "CondaDependencies": CondaDependencies,
    "Workspace": Workspace,
    "ComputeTarget": ComputeTarget,
    "AmlCompute": AmlCompute,
}
OUR_OWN = {
    "Run": ("record",),
    "ScriptRun": ("record", "submitted"),
    "Environment": ("dockerfile", "job_key"),
    "CondaDependencies": ("conda_file",),
}
"""What the classes have beside azureml-core's."""
EXPERIMENTS = ["digits", "a-b_c", "1", "", " ", "a b", "-a", "_a", "a/b", "a.b", "x" * 255, "x" * 256]
MODULES = {
    "azureml.core": launch.azureml,
    "azureml.core.runconfig": launch.azureml.runconfig,
    "azureml.core.compute": launch.azureml.compute,
}
FACTS = """
import inspect, json, re

def signature(function):
    return [
        [p.name, p.kind.name, None if p.default is p.empty else repr(p.default)]
        for p in inspect.signature(function).parameters.values()
    ]

def signatures(cls):
    found = {"__init__": signature(cls.__init__)}
    for name, member in inspect.getmembers_static(cls):
        if not name.startswith("_") and callable(getattr(cls, name)):
            found[name] = signature(getattr(cls, name))
    return found

def public(thing):
    return {name: value for name, value in vars(thing).items() if not name.startswith("_")}

def error(call):
    try:
        call()
    except Exception as raised:
        return type(raised).__name__

def facts(C, R):
    def run_config(made):
        run = made.run_config
        keys = ("framework", "communicator", "node_count", "target", "max_run_duration_seconds", "script")
        found = {key: getattr(run, key) for key in keys}
        found |= {key: public(getattr(run, key)) for key in ("mpi", "pytorch", "tensorflow", "docker")}
        own = ("source_directory", "script", "arguments", "command")
        return found | {"environment": run.environment.name, "own": {key: getattr(made, key) for key in own}}

    distributed = {
        "none": None,
        "mpi": R.MpiConfiguration(4, 2),
        "pytorch": R.PyTorchConfiguration("Gloo", 6, 3),
        "tensorflow": R.TensorflowConfiguration(3, 2),
    }
    old = R.RunConfiguration("old.py", ["--old"], communicator="OpenMpi")
    old.target = "dev"
    misspelt = lambda made: lambda: setattr(made, "node_cuont", 2)
    return {
        "version": C.VERSION,
        "images": [R.DEFAULT_CPU_IMAGE, R.DEFAULT_GPU_IMAGE, R.MPI_CPU_IMAGE, R.MPI_GPU_IMAGE],
        "defaults": {
            name: public(getattr(R, name)())
            for name in (
                "MpiConfiguration", "PyTorchConfiguration", "TensorflowConfiguration", "DockerConfiguration"
            )
        },
        "filled in": {
            name: run_config(C.ScriptRunConfig("src", "train.py", distributed_job_config=job))
            for name, job in distributed.items()
        },
        "given": [
            run_config(C.ScriptRunConfig("src", run_config=old)),
            run_config(C.ScriptRunConfig("src", "new.py", ["--new"], old, compute_target="other")),
            run_config(C.ScriptRunConfig("src", run_config=R.RunConfiguration())),
            run_config(
                C.ScriptRunConfig("src", command="ls", compute_target="dev", max_run_duration_seconds=9)
            ),
        ],
        "errors": [
            error(lambda: R.PyTorchConfiguration("mpi")),
            error(lambda: R.PyTorchConfiguration("NCCL")),
            error(lambda: C.ScriptRunConfig("src", distributed_job_config="mpi")),
            error(lambda: C.ScriptRunConfig("src", docker_runtime_config="8g")),
            error(misspelt(R.MpiConfiguration())),
            error(misspelt(R.RunConfiguration())),
            error(misspelt(C.Environment("x"))),
        ],
    }
"""
PROGRAM = """
import logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import importlib
import azureml.core as C
import azureml.core.runconfig as R
from azureml._base_sdk_common.common import _valid_experiment_name
from azureml._execution._commands import _run_config_modification
from azureml.core.compute import AmlCompute
from azureml.core.conda_dependencies import CondaDependencies

asked = json.loads(sys.argv[1])
joined = R.RunConfiguration(command=["torchrun", "--nnodes", "$N", "a b"])
_run_config_modification(joined)
classes = {"AmlCompute": AmlCompute, "CondaDependencies": CondaDependencies}
for name in asked["classes"]:
    classes.setdefault(name, getattr(C, name, None) or getattr(R, name, None))
print(json.dumps({
    "signatures": {name: signatures(cls) for name, cls in classes.items()},
    "names": {name: [n for n in dir(cls) if not n.startswith("_")] for name, cls in classes.items()},
    "modules": {
        name: [
            n
            for n, value in vars(importlib.import_module(name)).items()
            if inspect.isclass(value) and value.__module__.startswith(name) and not n.startswith("_")
        ]
        for name in asked["modules"]
    },
    "facts": facts(C, R),
    "joined": joined.command,
    "experiments": [bool(_valid_experiment_name(name)) for name in asked["experiments"]],
}))
"""


@pytest.fixture(scope="module")
def oracle() -> dict[str, Any]:
    """What azureml-core says of itself. A missing environment fails: `make frameworks` makes it."""
    assert ORACLE.exists(), "run `make frameworks` first"
    asked = json.dumps({"classes": list(CLASSES), "modules": list(MODULES), "experiments": EXPERIMENTS})
    done = subprocess.run(
        [ORACLE, "-c", FACTS + PROGRAM, asked], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def ours() -> dict[str, Any]:
    """The same functions, here."""
    scope: dict[str, Any] = {}
    exec(FACTS, scope)
    return scope


@pytest.mark.parametrize("name", CLASSES)
def test_signatures_and_defaults_are_azure_mls(oracle: dict[str, Any], name: str) -> None:
    theirs = oracle["signatures"][name]
    for method, parameters in ours()["signatures"](CLASSES[name]).items():
        if method not in theirs:
            assert method in OUR_OWN.get(name, ()), f"azureml-core has no {name}.{method}"
            continue
        mine = [[p[0], p[1], "[]" if p[2] == "()" else p[2]] for p in parameters]
        assert mine == theirs[method], f"{name}.{method}"


@pytest.mark.parametrize("name", CLASSES)
def test_whatever_a_class_lacks_it_names(oracle: dict[str, Any], name: str) -> None:
    cls: Any = CLASSES[name]
    silent = []
    for member in oracle["names"][name]:
        try:
            inspect.getattr_static(cls, member)
        except AttributeError:
            try:
                getattr(cls, member)
            except NotSupported:
                continue
            except AttributeError:
                silent.append(member)
    made: dict[str, Callable[[], Any]] = {
        "RunConfiguration": RunConfiguration,
        "Environment": lambda: Environment("x"),
        "Experiment": lambda: Experiment(None, "x"),
        "Workspace": lambda: Workspace(None, None, "x"),
        "Run": lambda: Run(None, "x"),
        "ScriptRun": lambda: ScriptRun(None, "x"),
    }
    instance = made.get(name, lambda: None)()
    assert [member for member in silent if instance is None or member not in vars(instance)] == []


@pytest.mark.parametrize("name", MODULES)
def test_whatever_a_module_lacks_it_names(oracle: dict[str, Any], name: str) -> None:
    for member in oracle["modules"][name]:
        try:
            getattr(MODULES[name], member)
        except NotSupported:
            continue


def test_what_is_filled_in_is_what_azure_ml_fills_in(oracle: dict[str, Any]) -> None:
    mine = ours()["facts"](launch.azureml, launch.azureml.runconfig)
    theirs = oracle["facts"]
    assert json.loads(json.dumps(mine)) == theirs


def test_words_of_a_command_are_joined_as_azure_ml_joins_them(oracle: dict[str, Any]) -> None:
    assert joined(["torchrun", "--nnodes", "$N", "a b"]) == oracle["joined"]


def test_an_experiment_may_be_called_what_azure_ml_lets_it_be_called(oracle: dict[str, Any]) -> None:
    def allowed(name: str) -> bool:
        try:
            Experiment(None, name)
        except UserErrorException:
            return False
        return True

    assert [allowed(name) for name in EXPERIMENTS] == oracle["experiments"]
