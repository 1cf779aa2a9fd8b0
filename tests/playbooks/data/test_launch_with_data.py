"""Launches of jobs whose data is in storage, up to the point where they would connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.inventory import INVENTORY_FILE
from tests.playbooks.jobs.test_launch_file import Fab, planned

JOB = """\
command: ls ${{inputs.a}} ${{inputs.b}}
inputs:
  a: {type: uri_folder, path: azureml:iris@latest}
  b: {type: uri_file, path: azureml://datastores/workspaceblobstore/paths/b.csv, mode: direct}
"""
ASSET = "name: iris\nversion: {0}\npath: azureml://datastores/big/paths/iris-{0}\n"
ACME = "https://acme.blob.core.windows.net"
TABLE = "azureml://datastores/workspaceblobstore/paths/table/"


@pytest.fixture
def stored(own: Path) -> Path:
    """The repository, whose stack has storage, a datastore of another account, and assets."""
    project = own.parent / "ranklift"
    path = project / ".ranklift" / "dev" / INVENTORY_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "blob_endpoint": f"{ACME}/"}))
    settings = "config:\n  ranklift:datastores:\n    big: https://other.blob.core.windows.net/sets\n"
    (project / "Pulumi.dev.yaml").write_text(settings)
    (own / "data").mkdir()
    for version in (2, 10):
        (own / "data" / f"iris-{version}.yml").write_text(ASSET.format(version))
    (own / "job.yml").write_text(JOB)
    return own


def test_a_plan_shows_what_is_staged_and_the_address_of_what_is_not(stored: Path, fab: Fab) -> None:
    plan = planned(fab, "job.yml")
    assert plan["argv"] == ["bash", "-c", f"ls ${{{{inputs.a}}}} {ACME}/data/b.csv"]
    url = "https://other.blob.core.windows.net/sets/iris-10"
    nothing = {"id": "", "path": "", "bytes": 0, "files": 0, "seconds": 0.0}
    assert plan["data"] == [{"name": "a", "url": url, **nothing}]
    shown = fab("launch", "job.yml", "--dry-run").stdout
    assert (
        "data       a: https://other.blob.core.windows.net/sets/iris-10, staged on every node before" in shown
    )


def test_a_command_line_takes_data_of_every_place(stored: Path, fab: Fab) -> None:
    words = "train.py ${{inputs.a}} ${{ inputs.b }} ${{inputs.c}}"
    given = ["a=azureml:iris:2", "b=table.csv", "c=file:///mnt/my set"]
    flags = [word for one in given for word in ("--input", one)]
    done = fab("launch.torch", words, "--source", "src", *flags, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    first, second, third = plan["argv"][-3:]
    assert (first, third) == ("${{inputs.a}}", "/mnt/my set")
    assert second.startswith("/home/azureuser/.ranklift/snapshots/")
    assert second.endswith("/table.csv")
    assert [one["url"] for one in plan["data"]] == ["https://other.blob.core.windows.net/sets/iris-2"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("azureml:iris@latest", "azureml:irsi:1", "line 3: inputs.a.path = 'azureml:irsi:1': no file in"),
        ("azureml:iris@latest", "azureml:irsi:1", "did you mean azureml:iris?"),
        ("azureml:iris@latest", "azureml:iris:3", "has no such version, only 10, 2"),
        ("type: uri_folder", "type: uri_file", "line 3: inputs.a.type = 'uri_file': "),
        ("workspaceblobstore", "My_Store", "line 4: inputs.b.path = 'My_Store': is not a datastore here"),
    ],
)
def test_wrong_data_is_refused_before_anything_connects(
    stored: Path,
    fab: Fab,
    old: str,
    new: str,
    problem: str,
) -> None:
    (stored / "job.yml").write_text(JOB.replace(old, new))
    done = fab("launch", "job.yml")
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_two_files_of_one_version_are_refused(stored: Path, fab: Fab) -> None:
    (stored / "data" / "again.yml").write_text(ASSET.format(2))
    done = fab("launch", "job.yml")
    assert done.returncode == 2
    assert "has the same version in" in done.stderr


def test_a_stack_without_storage_says_how_to_get_it(own: Path, fab: Fab) -> None:
    (own / "job.yml").write_text(JOB.replace("azureml:iris@latest", "azureml://datastores/data/paths/x"))
    done = fab("launch", "job.yml")
    assert done.returncode == 2
    assert "the stack has no storage; set ranklift:storage to serviceEndpoint and run `fab up`" in done.stderr


def test_an_input_that_is_not_given_is_named(stored: Path, fab: Fab) -> None:
    done = fab("launch.torch", "train.py ${{inputs.x}}", "--source", "src", "--dry-run")
    assert "error: line = '${{inputs.x}}': is not given; give --input x=ADDRESS\n" in done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("name", "is replaced in the path of an output alone; ranks see the job's id as AZUREML_RUN_ID"),
        (
            "outputs.x",
            "inputs alone are; write ${{inputs.NAME}} and give --input NAME=ADDRESS; results belo",
        ),
        ("secrets.KEY", "leave it out, and launch with --env KEY: "),
        ("inputs.x y", "is not given; give --input NAME=ADDRESS"),
    ],
)
def test_any_other_expression_of_a_line_is_refused(stored: Path, fab: Fab, name: str, told: str) -> None:
    done = fab("launch.torch", f"train.py ${{{{{name}}}}}", "--source", "src", "--dry-run")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: line = '${{{{{name}}}}}': ")
    assert told in done.stderr
    done = fab("launch.torch", f"train.py ${{{{{name}}}", "--source", "src", "--dry-run")
    assert ": ${{ is not closed; close it with }}, as in ${{inputs.NAME}}\n" in done.stderr


def test_no_expression_is_replaced_in_an_option(stored: Path, fab: Fab) -> None:
    done = fab("launch", "job.yml", "--env", "RUN=${{name}}", "--dry-run")
    assert done.stderr.startswith("error: --env RUN: has ${{, and no expression is replaced in an option; ")


def test_no_sas_is_in_a_plan(stored: Path, fab: Fab) -> None:
    (stored / "sas").write_text("https://other.blob.core.windows.net/sets?sv=1&sig=SECRET\n")
    done = fab("launch", "job.yml", "--sas-file", "sas", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert "SECRET" not in done.stdout + done.stderr


@pytest.fixture
def shared(stored: Path) -> Path:
    """The repository, whose stack has a folder that all nodes share."""
    path = stored.parent / "ranklift" / ".ranklift" / "dev" / INVENTORY_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "shared_folder": "/mnt/nfs"}))
    return stored


@pytest.mark.parametrize(
    ("mode", "block", "flags", "place"),
    [
        ("", "", [], ""),
        ("", "stage: nfs", [], "/mnt/nfs"),
        ("", "stage: nfs", ["--stage", "disk"], ""),
        ("", "", ["--stage", "nfs"], "/mnt/nfs"),
        (", mode: ro_mount", "", [], "/mnt/nfs"),
        (", mode: ro_mount", "stage: disk", [], ""),
        (", mode: download", "", [], ""),
    ],
)
def test_data_are_staged_where_the_file_or_the_option_says(
    shared: Path, fab: Fab, mode: str, block: str, flags: list[str], place: str
) -> None:
    job = JOB.replace("azureml:iris@latest", f"azureml:iris@latest{mode}")
    (shared / "job.yml").write_text(f"{job}ranklift: {{{block}}}\n")
    done = fab("launch", "job.yml", *flags, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert [one["path"] for one in json.loads(done.stdout)["data"]] == [place]
    where = f"in {place}" if place else "on every node"
    assert f"sets/iris-10, staged {where} before" in fab("launch", "job.yml", *flags, "--dry-run").stdout


def test_a_mount_without_a_shared_folder_is_each_nodes_own_disk(stored: Path, fab: Fab) -> None:
    (stored / "job.yml").write_text(JOB.replace("@latest", "@latest, mode: ro_mount"))
    plan: Any = planned(fab, "job.yml")
    assert [one["path"] for one in plan["data"]] == [""]


@pytest.mark.parametrize(
    ("word", "flags", "problem"),
    [
        (
            "nfs",
            [],
            "job.yml, line 5: ranklift.stage = 'nfs': the stack has no shared folder; set ranklift:nfs",
        ),
        ("blob", [], "line 5: ranklift.stage = 'blob': is not a known value; use one of disk, nfs"),
        (
            "disk",
            ["--stage", "nfs"],
            "--stage = 'nfs': the stack has no shared folder; set ranklift:nfs and run",
        ),
        ("disk", ["--stage", "NFS"], "--stage = 'NFS': is not where data can be staged; use disk or nfs"),
    ],
)
def test_a_place_that_there_is_not_is_refused(
    stored: Path, fab: Fab, word: str, flags: list[str], problem: str
) -> None:
    (stored / "job.yml").write_text(f"{JOB}ranklift: {{stage: {word}}}\n")
    done = fab("launch", "job.yml", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_a_command_line_has_data_in_the_shared_folder(shared: Path, fab: Fab) -> None:
    words = ["train.py ${{inputs.a}}", "--source", "src", "--input", "a=azureml:iris:2", "--stage", "nfs"]
    done = fab("launch.torch", *words, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert [one["path"] for one in json.loads(done.stdout)["data"]] == ["/mnt/nfs"]


def test_wrong_limits_of_stagings_are_refused_by_their_setting(stored: Path, fab: Fab) -> None:
    settings = stored.parent / "ranklift" / "Pulumi.dev.yaml"
    settings.write_text(settings.read_text() + "  ranklift:dataRateMBps: fast\n")
    done = fab("launch", "job.yml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ranklift:dataRateMBps = 'fast': is not a whole number; set it to a whole number" in done.stderr


def test_a_table_in_storage_is_announced_to_come_without_what_it_names_elsewhere(
    stored: Path, fab: Fab
) -> None:
    (stored / "job.yml").write_text(
        JOB.replace("uri_folder, path: azureml:iris@latest", f"mltable, path: {TABLE}")
    )
    done = fab("launch", "job.yml", "--dry-run")
    assert (
        "input a: its folder comes to the nodes, but nothing that its MLTable names elsewhere" in done.stdout
    )


def test_a_table_of_this_machine_whose_data_is_elsewhere_is_refused(stored: Path, fab: Fab) -> None:
    (stored / "table").mkdir()
    (stored / "table" / "MLTable").write_text(f"paths:\n  - folder: {TABLE}\n")
    (stored / "job.yml").write_text(
        JOB.replace("uri_folder, path: azureml:iris@latest", "mltable, path: table")
    )
    done = fab("launch", "job.yml")
    assert done.returncode == 2
    assert (
        f"table/MLTable, line 2: paths[0].folder = '{TABLE}': is not below the table's folder" in done.stderr
    )
