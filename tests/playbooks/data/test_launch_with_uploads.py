"""Job files whose outputs go to storage, up to the point where a launch would connect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.inventory import INVENTORY_FILE
from launch.data import output_places
from launch.remote.collect import trees
from tests.playbooks.jobs.test_launch_file import Fab, planned

JOB = """\
command: touch ${{outputs.model}}/a
outputs:
  model: {type: custom_model, path: azureml://datastores/workspaceblobstore/paths/models/my set}
  other: {type: uri_folder, path: https://other.blob.core.windows.net/sets/x}
  here: {type: uri_folder}
ranklift: {upload: true, upload_every: 10m}
"""
ACME = "https://acme.blob.core.windows.net"


@pytest.fixture
def stored(own: Path) -> Path:
    """The repository, whose stack has storage."""
    path = own.parent / "ranklift" / ".ranklift" / "dev" / INVENTORY_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "blob_endpoint": f"{ACME}/"}))
    (own / "job.yml").write_text(JOB)
    return own


def test_a_plan_has_the_place_of_each_output_and_of_the_whole(stored: Path, fab: Fab) -> None:
    plan = planned(fab, "job.yml")
    assert plan["uploads"] == [
        {"name": "model", "url": f"{ACME}/data/models/my%20set"},
        {"name": "other", "url": "https://other.blob.core.windows.net/sets/x"},
        {"name": "", "url": f"{ACME}/results/{plan['id']}"},
    ]
    assert plan["upload_every_s"] == 600.0


def test_each_job_of_a_file_has_its_own_place_by_its_id(stored: Path, fab: Fab) -> None:
    path = "azureml://datastores/${{default_datastore}}/paths/azureml/${{name}}/${{output_name}}/"
    (stored / "job.yml").write_text(f"command: ls\noutputs: {{model: {{path: '{path}'}}}}\n")
    plans = [planned(fab, "job.yml") for _ in range(2)]
    urls = [f"{ACME}/data/azureml/{plan['id']}/model" for plan in plans]
    assert [plan["uploads"] for plan in plans] == [[{"name": "model", "url": url}] for url in urls]
    assert len(set(urls)) == 2


@pytest.mark.parametrize("path", ["${{name}}", "${{name}}/logs", "${{name}}/outputs/x", "${{name}}/own"])
def test_an_output_among_the_folders_of_the_whole_is_refused(stored: Path, fab: Fab, path: str) -> None:
    place = f"azureml://datastores/results/paths/{path}"
    text = f"command: ls\noutputs:\n  model: {{path: '{place}'}}\nranklift: {{upload: true}}\n"
    (stored / "job.yml").write_text(text)
    done = fab("launch", "job.yml", "--dry-run")
    if path.endswith("own"):
        assert done.returncode == 0
        return
    assert done.returncode == 2
    assert "line 3: outputs.model.path = " in done.stderr
    assert "where ranklift.upload puts the job's" in done.stderr


def test_the_folders_of_the_whole_are_those_that_nodes_send() -> None:
    assert output_places._TREES == trees.TREES


def test_without_a_place_nothing_is_uploaded(stored: Path, fab: Fab) -> None:
    (stored / "job.yml").write_text("command: hostname\noutputs: {here: }\n")
    plan = planned(fab, "job.yml")
    assert (plan["uploads"], plan["upload_every_s"]) == ([], None)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "paths/models/my set",
            "paths/",
            "line 3: outputs.model.path = 'https://acme.blob.core.windows.net/da",
        ),
        ("upload: true, ", "upload: 3, ", "line 6: ranklift.upload = 3: is neither true nor false"),
        (
            "https://other.blob.core.windows.net/sets/x",
            f"{ACME}/data/models/my%20set/b",
            "data/models/my%20set/b': overlaps with that of output model",
        ),
        (
            "workspaceblobstore",
            "My_Store",
            "line 3: outputs.model.path = 'My_Store': is not a datastore here",
        ),
        (
            JOB[JOB.index("outputs:") :],
            "ranklift: {upload_every: 10m}",
            "line 2: ranklift.upload_every = '10m': has nothing to upload; set ranklift.upload: true",
        ),
    ],
)
def test_a_wrong_place_is_refused_before_anything_connects(
    stored: Path, fab: Fab, old: str, new: str, problem: str
) -> None:
    (stored / "job.yml").write_text(JOB.replace("touch ${{outputs.model}}/a", "ls").replace(old, new))
    done = fab("launch", "job.yml")
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_a_stack_without_storage_has_no_place_for_the_whole(own: Path, fab: Fab) -> None:
    (own / "job.yml").write_text("command: ls\nranklift: {upload: true}\n")
    done = fab("launch", "job.yml")
    assert done.returncode == 2
    assert "line 2: ranklift.upload = 'workspaceblobstore': the stack has no storage" in done.stderr
