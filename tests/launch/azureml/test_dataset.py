"""Datasets in a run's arguments: inputs and outputs of the job file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.azureml import (
    Dataset,
    Datastore,
    Experiment,
    NotSupported,
    OutputFileDatasetConfig,
    ScriptRunConfig,
    Workspace,
)
from launch.azureml.exceptions import UserErrorException
from launch.azureml.submission import submission
from launch.data.data_spec import DatastorePath
from launch.jobfile import destination, read
from tests.launch.azureml.fake_fab import FakeFab

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
                Dataset.File.from_files(
                    (Datastore.get(workspace, "big"), "a b.csv"), is_file=True
                ).as_named_input("table"),
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


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("images/v1.0/", "uri_folder"),
        ("images/v1.0/**", "uri_folder"),
        ("images", "uri_folder"),
        ("https://example.org/iris.csv", "uri_file"),
        ("images/v1.0", None),
        ("https://account.blob.core.windows.net/data/v1.0", None),
    ],
)
def test_a_dot_in_a_name_does_not_make_it_a_file(workspace: Workspace, path: str, kind: str | None) -> None:
    place = path if "://" in path else (workspace.get_default_datastore(), path)
    assert Dataset.File.from_files(place).as_download().entry().get("type") == kind


@pytest.mark.parametrize(
    ("name", "rows", "kind"),
    [
        ("v1.0", [{"name": "images/v1.0", "files": 1}], "uri_file"),
        ("v1.0", [{"name": "of/the/datastore/images/v1.0", "files": 1}], "uri_file"),
        ("v1.0", [{"name": "v1.0", "files": 1}], "uri_folder"),
        ("v1.0", [{"name": "a.png", "files": 1}], "uri_folder"),
        ("v1.0", [{"name": "train/", "files": 9}, {"name": "val/", "files": 3}], "uri_folder"),
    ],
)
def test_storage_answers_whether_a_name_with_a_dot_is_a_file(
    fab: FakeFab, workspace: Workspace, name: str, rows: list[dict[str, Any]], kind: str
) -> None:
    fab.answer("data.ls", out=json.dumps(rows))
    data = Dataset.File.from_files((workspace.get_default_datastore(), f"images/{name}"))
    config = ScriptRunConfig("src", "train.py", ["--data", data], compute_target="dev")
    Experiment(workspace, "x").submit(config)
    assert fab.words("data.ls") == [["data.ls", f"{STORE}/images/{name}", "--json", "--stack", "dev"]]
    job = yaml.safe_load(fab.calls[-1]["job"])
    assert job["inputs"]["input_1"]["type"] == kind


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"out": "[]"}, "is neither a file nor a folder in storage"),
        ({"status": 1, "err": "error: no right\n"}, "storage does not answer which: no right"),
    ],
)
def test_without_an_answer_the_script_has_to_say_it(
    fab: FakeFab, workspace: Workspace, answer: dict[str, Any], problem: str
) -> None:
    fab.answer("data.ls", **answer)
    data = Dataset.File.from_files((workspace.get_default_datastore(), "v1.0"))
    with pytest.raises(
        UserErrorException, match=rf"{problem}; if it is a folder, end it with a slash; if .*is_file"
    ):
        Experiment(workspace, "x").submit(ScriptRunConfig("src", "train.py", ["--data", data]))
    assert fab.words("launch") == []


@pytest.mark.parametrize("make", [str, "{}".format, lambda one: f"{one}"])
def test_data_has_no_text(workspace: Workspace, make: Any) -> None:
    for one in (workspace.get_default_datastore().path("a"), OutputFileDatasetConfig("b")):
        with pytest.raises(NotSupported, match="without str"):
            make(one)


def test_what_datasets_lack_is_named_with_a_remedy(workspace: Workspace) -> None:
    with pytest.raises(NotSupported, match=r"Dataset\.Tabular is not offered .*as_download\(\)"):
        Dataset.Tabular  # noqa: B018
    with pytest.raises(NotSupported, match=r"upload once with `fab data\.put"):
        workspace.get_default_datastore().upload()
