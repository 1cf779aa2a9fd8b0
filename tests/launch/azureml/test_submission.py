"""From a run configuration to a job file, a stack and notices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.azureml import (
    ComputeTarget,
    Environment,
    Experiment,
    MpiConfiguration,
    NotSupported,
    PyTorchConfiguration,
    RunConfiguration,
    RunConfigurationException,
    ScriptRunConfig,
    TensorflowConfiguration,
    UserErrorException,
)
from launch.azureml.submission import Submission, submission
from launch.jobfile import Pushed, make, read
from tests.launch.azureml.fake_fab import FakeFab

pytestmark = pytest.mark.usefixtures("fab")


def planned(
    *, environ: dict[str, str] | None = None, tags: dict[str, Any] | None = None, **given: Any
) -> Submission:
    """What a ScriptRunConfig of ``src/train.py`` launches."""
    words = {"source_directory": "src", **given}
    if "command" not in words and "run_config" not in words:
        words.setdefault("script", "train.py")
    return submission(ScriptRunConfig(**words), "digits", tags or {}, environ or {})


def variables_of(job: dict[str, Any]) -> dict[str, str]:
    """What its processes see."""
    path = Path("job.yml")
    path.write_text(json.dumps(job))
    pushed = Pushed("0123", ["train.py"], {})
    spec = make(read(path), nodes=1, identifier="digits-20260301-090507-0f3a", home="/", pushed=pushed).spec
    return dict(spec.env)


def interpreter(path: str) -> Environment:
    """An environment that is no more than a Python on the nodes."""
    environment = Environment("mine")
    environment.python.user_managed_dependencies = True
    environment.python.interpreter_path = path
    return environment


def test_a_script_runs_under_python_with_its_arguments() -> None:
    job = planned(arguments=["--name", "a b", "--lr", 0.1, "--local_rank", "$LOCAL_RANK"]).job
    assert job["command"] == "python train.py --name 'a b' --lr 0.1 --local_rank \"${LOCAL_RANK}\""
    assert job["code"] == str(Path("src").resolve())
    assert job["resources"] == {"instance_count": 1}
    assert "distribution" not in job


@pytest.mark.parametrize("given", ["echo $NODE_RANK; ls", ["echo", "$NODE_RANK;", "ls"]])
def test_a_command_is_a_line_for_a_shell(given: Any) -> None:
    assert planned(command=given).job["command"] == "echo $NODE_RANK; ls"


def test_environment_variables_carry_over_and_those_of_the_run_win() -> None:
    run = RunConfiguration(script="train.py")
    run.environment.environment_variables = {"A": "1", "B": "two words", "LR": "1"}
    run.environment_variables["LR"] = "0.1"
    run.environment_variables["EPOCHS"] = 5  # type: ignore[assignment]
    made = planned(run_config=run)
    assert made.job["environment_variables"] == {"A": "1", "B": "two words", "LR": "0.1", "EPOCHS": "5"}
    assert made.notices == ()


@pytest.mark.parametrize(
    "value",
    ["${{inputs.lr}}", "$${{x}} {{y}}", "${{", "$[[a]]", "${{$[[${{outputs.o}}", "{inputs.x}", "$", ""],
)
def test_a_variable_stays_as_it_is_and_on_no_command_line(fab: FakeFab, value: str) -> None:
    environment = Environment("mine")
    environment.environment_variables = {"LR": value, "A": "1"}
    Experiment(None, "digits").submit(ScriptRunConfig("src", "train.py", environment=environment))
    (words,) = fab.words("launch")
    # Anybody on this machine can read a command line.
    assert "--env" not in words
    assert variables_of(planned(environment=environment).job) == {"LR": value, "A": "1"}


def test_tags_become_text() -> None:
    assert planned(tags={"try": 3}).job["tags"] == {"try": "3"}


def test_the_time_limit_carries_over() -> None:
    assert planned().job["limits"] == {"timeout": 2592000}
    assert planned(max_run_duration_seconds=90).job["limits"] == {"timeout": 90}
    assert "limits" not in planned(max_run_duration_seconds=None).job


# -- which stack --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "environ", "stack"),
    [
        (None, {}, None),
        ("local", {}, None),
        ("dev", {}, "dev"),
        (ComputeTarget(None, "dev"), {}, "dev"),
        ("dev", {"RANKLIFT_STACK": "dev"}, "dev"),
        ("gpu-cluster", {"RANKLIFT_STACK": "dev"}, "dev"),
        (None, {"RANKLIFT_STACK": "dev"}, "dev"),
    ],
)
def test_a_compute_target_is_a_stack_unless_one_was_chosen(
    target: Any, environ: dict[str, str], stack: str | None
) -> None:
    assert planned(compute_target=target, environ=environ).stack == stack


def test_a_compute_target_that_goes_elsewhere_is_told() -> None:
    made = planned(compute_target="gpu-cluster", environ={"RANKLIFT_STACK": "dev"})
    assert made.notices == ("compute target gpu-cluster: runs go to stack dev, which RANKLIFT_STACK names",)


def test_what_is_no_compute_target_is_refused() -> None:
    with pytest.raises(RunConfigurationException, match="is not a compute target"):
        planned(compute_target=7)


# -- which Python -------------------------------------------------------------------------------------------


def test_a_python_of_ones_own_runs_the_script_and_needs_no_notice() -> None:
    environment = interpreter("/opt/train/bin/python")
    environment.python.conda_dependencies.add_pip_package("torch")
    made = planned(environment=environment)
    assert made.job["command"] == "/opt/train/bin/python train.py"
    assert made.job["ranklift"] == {"python": "/opt/train/bin/python"}
    assert made.notices == ()


@pytest.mark.parametrize(
    ("named", "command"),
    [
        ("/opt/train", "python train.py"),
        ("~/train", "python train.py"),
        ("python3.11", "python3.11 train.py"),
        ("~/my train/bin/python", "~/'my train/bin/python' train.py"),
    ],
)
def test_a_variable_can_name_the_nodes_python(named: str, command: str) -> None:
    job = planned(environ={"RANKLIFT_PYTHON": named}).job
    assert (job["command"], job["ranklift"]) == (command, {"python": named})


def test_a_relative_path_begins_at_the_current_folder() -> None:
    job = planned(environ={"RANKLIFT_PYTHON": "envs/train"}).job
    assert job["ranklift"] == {"python": str(Path("envs/train").absolute())}


# -- kinds of job -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "distribution", "nodes"),
    [
        (MpiConfiguration(), {"type": "mpi", "process_count_per_instance": 1}, 1),
        (MpiConfiguration(8, 4), {"type": "mpi", "process_count_per_instance": 8}, 4),
        (PyTorchConfiguration(), {"type": "pytorch"}, 1),
        (PyTorchConfiguration(node_count=3), {"type": "pytorch"}, 3),
        (PyTorchConfiguration("Gloo", 6, 3), {"type": "pytorch", "process_count_per_instance": 2}, 3),
        (
            TensorflowConfiguration(3, 0),
            {"type": "tensorflow", "worker_count": 3, "parameter_server_count": 0},
            3,
        ),
        (
            TensorflowConfiguration(worker_count=2),
            {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1},
            2,
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_each_kind_of_distributed_job(config: Any, distribution: dict[str, Any], nodes: int) -> None:
    job = planned(distributed_job_config=config).job
    assert (job["distribution"], job["resources"]) == (distribution, {"instance_count": nodes})


def test_the_older_way_through_a_run_configuration() -> None:
    run = RunConfiguration(framework="Python", communicator="OpenMpi")
    run.node_count = 2
    run.mpi.process_count_per_node = 4
    run.target = "dev"
    made = planned(run_config=run, script="train.py")
    assert made.job["distribution"] == {"type": "mpi", "process_count_per_instance": 4}
    assert (made.job["resources"], made.stack) == ({"instance_count": 2}, "dev")


def test_a_run_configuration_gives_what_the_script_run_does_not() -> None:
    run = RunConfiguration(script="train.py", arguments=["--epochs", 3])
    assert planned(run_config=run).job["command"] == "python train.py --epochs 3"
    assert planned(run_config=run, arguments=["-x"]).job["command"] == "python train.py -x"


def test_beside_a_run_configuration_other_settings_are_ignored_aloud(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ScriptRunConfig("src", run_config=RunConfiguration(script="train.py"), compute_target="dev")
    assert capsys.readouterr().err.startswith("notice: with a run_config, these are taken from it alone:")


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"distributed_job_config": PyTorchConfiguration(process_count=7, node_count=2)},
            "process_count = 7: does not divide by node_count = 2; "
            "give a multiple of node_count: process_count is the total over all nodes",
        ),
        (
            {"distributed_job_config": PyTorchConfiguration(process_count=1, node_count=2)},
            "process_count = 1: does not divide by node_count = 2",
        ),
        (
            {"distributed_job_config": MpiConfiguration(process_count_per_node=0)},
            "process_count_per_node = '0': is not a number of at least 1",
        ),
        (
            {"distributed_job_config": MpiConfiguration(node_count="2")},  # type: ignore[arg-type]
            "node_count = \"'2'\": is not a number of at least 1",
        ),
        (
            {"distributed_job_config": TensorflowConfiguration(0, 1)},
            "worker_count = '0': is not a number of at least 1",
        ),
        ({"script": None}, "script: is not given; give a script, or a command"),
        ({"script": "nope.py"}, "script = 'nope.py': is not a file in "),
        ({"script": "../fabfile.py"}, "script = '../fabfile.py': is not a file in "),
        (
            {"script": "train.py", "command": "ls"},
            "script = \"'train.py'\": cannot be combined with a command",
        ),
        ({"command": "ls", "arguments": ["-l"]}, "arguments = \"['-l']\": cannot be combined with a command"),
        (
            {"environment": interpreter("envs/bin/python")},
            "interpreter_path = 'envs/bin/python': is a relative path",
        ),
        ({"source_directory": "nowhere"}, "source_directory = 'nowhere': is not a folder"),
    ],
)
def test_what_cannot_be_launched_is_refused_by_name(given: dict[str, Any], error: str) -> None:
    with pytest.raises(UserErrorException) as caught:
        planned(**given)
    assert str(caught.value).startswith(error)


def test_several_nodes_need_a_kind_of_job() -> None:
    run = RunConfiguration(script="train.py")
    run.node_count = 2
    with pytest.raises(UserErrorException, match=r"^node_count = 2: several nodes need a distributed job"):
        planned(run_config=run)


def test_two_node_counts_that_differ_are_refused() -> None:
    run = RunConfiguration(script="train.py", communicator="IntelMpi")
    run.node_count = 3
    run.mpi = MpiConfiguration(node_count=2)
    with pytest.raises(
        UserErrorException, match=r"^node_count = 2: the run configuration has node_count = 3"
    ):
        planned(run_config=run)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"communicator": "ParallelTask"}, "the communicator ParallelTask is not offered"),
        ({"data": {"x": 1}}, "RunConfiguration.data is not offered"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    run = RunConfiguration(script="train.py")
    for key, value in change.items():
        setattr(run, key, value)
    with pytest.raises(NotSupported, match=named):
        planned(run_config=run)


def test_only_its_own_configurations_are_taken() -> None:
    with pytest.raises(RunConfigurationException, match="is not a configuration of a distributed job"):
        planned(distributed_job_config="mpi")
    with pytest.raises(RunConfigurationException, match="is not a DockerConfiguration"):
        planned(docker_runtime_config={"shm_size": "8g"})
    with pytest.raises(NotSupported, match="resume_from is not offered"):
        planned(resume_from="checkpoint")
