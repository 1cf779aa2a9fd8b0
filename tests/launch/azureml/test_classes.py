"""The classes behave as those they stand for; what they lack they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import launch.azureml
import launch.azureml.runconfig
from launch.azureml import (
    AmlCompute,
    ComputeTarget,
    CondaDependencies,
    Environment,
    MpiConfiguration,
    NotSupported,
    PyTorchConfiguration,
    Run,
    RunConfiguration,
    ScriptRunConfig,
    TensorflowConfiguration,
    UserErrorException,
    Workspace,
)

pytestmark = pytest.mark.usefixtures("fab")


@pytest.mark.parametrize(
    "made", [MpiConfiguration(), PyTorchConfiguration(), TensorflowConfiguration(), RunConfiguration()]
)
def test_a_misspelt_attribute_is_refused(made: Any) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'node_cuont'"):
        made.node_cuont = 2


def test_attributes_can_be_changed_after_the_fact() -> None:
    made = MpiConfiguration()
    made.process_count_per_node = 4
    assert made.process_count_per_node == 4


@pytest.mark.parametrize(
    "lookup",
    [
        launch.azureml.HyperDriveConfig,
        launch.azureml.DataPath,
        launch.azureml.runconfig.DataReferenceConfiguration,
        lambda: Environment.list,
        lambda: AmlCompute.attach,
        lambda: AmlCompute(None, "x").get_status().current_node_count,
        lambda: Run(None, "x").get_snapshot_id,
        lambda: Run.log,
        lambda: Run.get_context,
        lambda: list(Workspace.from_config().datastores),
        lambda: RunConfiguration().history,
    ],
)
def test_what_is_lacking_is_named(lookup: Any) -> None:
    with pytest.raises(NotSupported, match=" is not offered by Ranklift: ") as caught:
        lookup()
    assert isinstance(caught.value, NotImplementedError)


def test_using_what_is_lacking_says_what_to_do_instead() -> None:
    scope: dict[str, Any] = {}
    exec("from launch.azureml import HyperDriveConfig", scope)
    with pytest.raises(NotSupported, match="HyperDriveConfig is not offered by Ranklift: submit one run for"):
        scope["HyperDriveConfig"]()


@pytest.mark.parametrize("lookup", [lambda: launch.azureml.Nonsense, lambda: Environment.nonsense])
def test_what_azure_ml_does_not_have_either_is_merely_unknown(lookup: Any) -> None:
    with pytest.raises(AttributeError, match="onsense"):
        lookup()


# -- workspaces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [".azureml/config.json", "config.json"])
def test_a_workspace_has_the_name_that_its_config_gives(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(place).parent.mkdir(exist_ok=True)
    Path(place).write_text(
        json.dumps({"subscription_id": "s", "resource_group": "g", "workspace_name": "training"})
    )
    monkeypatch.chdir("src")
    ws = Workspace.from_config()
    assert (ws.name, ws.subscription_id, ws.resource_group) == ("training", "s", "g")


def test_without_a_config_it_has_the_projects_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Workspace.from_config().name == "own"
    monkeypatch.setenv("RANKLIFT_PROJECT", str(tmp_path / "cluster"))
    assert Workspace.from_config().name == "cluster"
    monkeypatch.delenv("RANKLIFT_PROJECT")
    Path("Pulumi.yaml").write_text("name: ranklift\n")
    monkeypatch.chdir("src")
    assert Workspace.from_config().name == "own"


def test_a_config_that_cannot_be_read_is_an_error() -> None:
    Path("config.json").write_text("[]")
    with pytest.raises(UserErrorException, match=r"is not a workspace's config.json"):
        Workspace.from_config()
    with pytest.raises(UserErrorException, match=r"^path = 'nowhere': is not there"):
        Workspace.from_config("nowhere")


def test_every_compute_target_can_be_asked_for_and_stacks_are_listed() -> None:
    Path("Pulumi.yaml").write_text("name: ranklift\n")
    for name in ("dev", "big"):
        Path(f".ranklift/{name}").mkdir(parents=True)
        Path(f".ranklift/{name}/inventory.json").write_text("{}")
    targets = Workspace.get("training").compute_targets
    assert sorted(targets) == ["big", "dev"]
    assert "gpu-cluster" in targets
    assert isinstance(targets["gpu-cluster"], ComputeTarget)
    assert targets["gpu-cluster"].name == "gpu-cluster"


def test_what_a_workspace_writes_it_reads_again() -> None:
    Workspace("s", "g", "training").write_config()
    ws = Workspace.from_config()
    assert (ws.name, ws.subscription_id, ws.resource_group) == ("training", "s", "g")
    Workspace("s", "g", "other").write_config("src", "lab.json")
    assert Workspace.from_config("src", _file_name="lab.json").name == "other"


def test_what_a_workspace_has_is_had_by_its_name() -> None:
    ws = Workspace.get("lab", location="westeurope")
    assert ws.datastores["big"].address("x") == "azureml://datastores/big/paths/x"
    assert ws.datasets["iris"].address == "azureml:iris@latest"
    assert ws.environments["mine"].job_key() == "azureml:mine@latest"
    assert (ws.location, ws.get_details()["location"]) == ("westeurope", "westeurope")


def test_a_target_is_created_only_where_its_stack_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("Pulumi.yaml").write_text("name: ranklift\n")
    Path(".ranklift/dev").mkdir(parents=True)
    Path(".ranklift/dev/inventory.json").write_text("{}")
    wanted = AmlCompute.provisioning_configuration("Standard_ND40rs_v2", max_nodes=4)
    made = ComputeTarget.create(None, "dev", wanted)
    assert (made.name, type(made)) == ("dev", AmlCompute)
    assert capsys.readouterr().err.startswith("notice: compute target dev: stack dev is used as it is; ")
    with pytest.raises(NotSupported, match="RANKLIFT_STACK"):
        ComputeTarget.create(None, "gpu", wanted)
    monkeypatch.setenv("RANKLIFT_STACK", "dev")
    assert ComputeTarget.create(None, "gpu", wanted).name == "gpu"


# -- environments -------------------------------------------------------------------------------------------


def test_an_environment_keeps_what_it_is_given() -> None:
    made = Environment("mine")
    made.environment_variables = {"A": "1"}
    made.python.conda_dependencies = CondaDependencies.create(
        conda_packages=["pip", "numpy"], pip_packages=["torch"], python_version="3.9"
    )
    made.python.conda_dependencies.remove_conda_package("numpy")
    again = made.register(None).clone("other")
    assert (again.name, again.environment_variables) == ("other", {"A": "1"})
    packages = {"dependencies": ["python=3.9", "pip", {"pip": ["torch"]}]}
    assert again.job_key() == {"conda_file": packages}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Environment.from_conda_specification("x", "nowhere.yml"),
        lambda: Environment.from_conda_specification("x", "list.yml"),
        lambda: Environment.from_pip_requirements("x", "nowhere.txt"),
        lambda: Environment.get(None, "x", version="1", label="latest"),
        lambda: Environment.from_dockerfile("x", "FROM y", conda_specification="a", pip_requirements="b"),
    ],
)
def test_an_environment_that_cannot_be_is_an_error(make: Any) -> None:
    Path("list.yml").write_text("- a\n")
    with pytest.raises(UserErrorException):
        make()


def test_a_script_run_config_fills_in_a_run_configuration() -> None:
    made = ScriptRunConfig("src", "train.py", distributed_job_config=PyTorchConfiguration("Gloo", 4, 2))
    run = made.run_config
    assert (run.framework, run.communicator, run.node_count) == ("PyTorch", "gloo", 2)
    assert (run.target, run.environment.name) == ("local", "default-environment")


def test_files_nested_without_end_are_refused_by_name(tmp_path: Path) -> None:
    deep = "[" * 100_000
    (tmp_path / "config.json").write_text(deep)
    with pytest.raises(UserErrorException, match=r"config\.json'?: is not a workspace's config"):
        Workspace.from_config(str(tmp_path / "config.json"))
    (tmp_path / "conda.yml").write_text("[" * 5000)
    with pytest.raises(UserErrorException, match=r"conda\.yml'?: is not a conda specification"):
        CondaDependencies(str(tmp_path / "conda.yml"))
    (tmp_path / "conda.yml").write_text(f"dependencies: [{'9' * 5000}]")
    with pytest.raises(UserErrorException, match=r"conda\.yml'?: is not a conda specification"):
        CondaDependencies(str(tmp_path / "conda.yml"))
