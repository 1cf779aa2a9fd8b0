"""Datasets in a run's arguments: inputs and outputs of the job file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.azureml import (
    Dataset,
    Datastore,
    NotSupported,
    OutputFileDatasetConfig,
    ScriptRunConfig,
    Workspace,
)
from launch.azureml.exceptions import UserErrorException
from launch.azureml.submission import submission
from launch.data.data_spec import DatastorePath
from launch.jobfile import destination, read

STORE = "azureml://datastores/workspaceblobstore/paths"


@pytest.fixture
def workspace() -> Workspace:
    return Workspace(None, None, "lab")


def job(folder: Path, arguments: list[Any]) -> dict[str, Any]:
    (folder / "train.py").touch()
    return submission(ScriptRunConfig(str(folder), "train.py", arguments=arguments), "e", {}, {}).job


def test_data_in_the_arguments_becomes_inputs_and_outputs(tmp_path: Path, workspace: Workspace) -> None:
    store = workspace.get_default_datastore()
    made = job(
        tmp_path,
        [
            *("--images", Dataset.File.from_files((store, "images/**")).as_mount()),
            *(
                "--table",
                Dataset.File.from_files((Datastore.get(workspace, "big"), "a b.csv")).as_named_input("table"),
            ),
            *("--iris", Dataset.get_by_name(workspace, "iris", 3)),
            *("--more", store.path("more", "reference").as_download()),
            *("--model", OutputFileDatasetConfig("model", (store, "models"))),
            "a b",
        ],
    )
    assert made["command"] == (
        'python train.py --images "${{inputs.input_1}}" --table "${{inputs.table}}" '
        '--iris "${{inputs.input_5}}" --more "${{inputs.reference}}" --model "${{outputs.model}}" \'a b\''
    )
    assert made["inputs"] == {
        "input_1": {"path": f"{STORE}/images", "mode": "ro_mount", "type": "uri_folder"},
        "table": {"path": "azureml://datastores/big/paths/a b.csv", "mode": "download", "type": "uri_file"},
        "input_5": {"path": "azureml:iris:3", "mode": "download"},
        "reference": {"type": "uri_folder", "path": f"{STORE}/more", "mode": "download"},
    }
    assert made["outputs"] == {"model": {"type": "uri_folder", "path": f"{STORE}/models"}}


def test_a_destination_names_the_run_and_the_output(tmp_path: Path, workspace: Workspace) -> None:
    store = workspace.get_default_datastore()
    made = job(tmp_path, [OutputFileDatasetConfig("model", (store, "a/{run-id}/{output-name}"))])
    path = tmp_path / "job.yml"
    path.write_text(yaml.safe_dump(made))
    place = read(path).places["outputs.model.path"]
    assert destination(place, "e-1") == DatastorePath("workspaceblobstore", "a/e-1/model")


@pytest.mark.parametrize("wrong", ["{run_id}", "{name}", "${{name}}", "{{run-id}}", "{run-id", "}"])
def test_what_is_not_replaced_in_a_destination_is_refused(
    tmp_path: Path, workspace: Workspace, wrong: str
) -> None:
    store = workspace.get_default_datastore()
    with pytest.raises(UserErrorException, match=r"^destination = .*; write \{run-id\} or \{output-name\}$"):
        job(tmp_path, [OutputFileDatasetConfig("model", (store, f"a/{wrong}/b"))])


def test_the_job_file_that_is_made_is_taken(tmp_path: Path, workspace: Workspace) -> None:
    data = Dataset.File.from_files((workspace.get_default_datastore(), "images")).as_mount()
    path = tmp_path / "job.yml"
    path.write_text(yaml.safe_dump(job(tmp_path, ["--images", data])))
    assert list(read(path).inputs) == ["input_1"]


@pytest.mark.parametrize("path", ["images", ["https://a/b", "https://a/c"], "https://a/*/b"])
def test_what_is_not_one_place_in_storage_is_refused(path: Any) -> None:
    with pytest.raises((UserErrorException, NotSupported)):
        Dataset.File.from_files(path)


def test_what_datasets_lack_is_named_with_a_remedy(workspace: Workspace) -> None:
    with pytest.raises(NotSupported, match=r"Dataset\.Tabular is not offered .*as_download\(\)"):
        Dataset.Tabular  # noqa: B018
    with pytest.raises(NotSupported, match=r"`fab data\.put` uploads"):
        workspace.get_default_datastore().upload()
