"""``--dry-run``: every task that changes something has it; nothing is changed then.

Nothing is connected to either, but by ``scale``, ``replace`` and ``down``, which ask the nodes what would be
lost.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.inventory import INVENTORY_FILE
from launch.errors import InputError
from playbooks import ns
from rehearsal import control, requirements
from rehearsal.run_dir import Folder
from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import arguments, fab, without_connections, write_project

READING = {
    *("account", "debug", "job", "jobs", "logs", "metrics", "plan", "report", "status", "top", "wait"),
    *("data.data", "data.ls", "environment.list", "rehearsal.env", "rehearsal.status"),
}
"""Tasks that only read; report writes the file that it is asked for."""
JOB = "train-20260301-090507-0f3a"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose stack ``dev`` has two nodes that nobody asks."""
    top = tmp_path_factory.mktemp("workplace")
    write_project(top, "dev", fabfile=True)
    keys = tmp_path_factory.mktemp("keys")
    save_stack(top / ".ranklift" / "dev", {0: 22, 1: 22}, make_key(keys / "host"), make_key(keys / "user"))
    (top / "iris.csv").write_text("1,2\n")
    (top / "iris.yml").write_text("name: iris\ntype: uri_file\npath: iris.csv\n")
    (top / "there.yml").write_text(
        "name: there\nversion: 7\ntype: uri_folder\npath: https://acc.blob.core.windows.net/data/x/\n"
    )
    return top


def test_every_task_has_a_dry_run_or_only_reads() -> None:
    without = {
        task
        for task in ns.task_names
        if "dry-run" not in {one.name.replace("_", "-") for one in arguments(task)}
    }
    assert without == READING


BLOB = "https://acc.blob.core.windows.net/data/train"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cancel", JOB], f"ask the head of job {JOB} to end it, or to take it out of the queue"),
        (["cancel", "tr", "--grace", "5s"], "the job whose id, or its last part, begins with tr"),
        (["cancel", "tr", "--grace", "5s"], "SIGKILL after 5 s"),
        (["cancel"], "the newest job that has not ended"),
        (
            ["collect", JOB, "--into", "here"],
            f"logs and outputs of job {JOB} from its nodes into here/<job>/",
        ),
        (["collect"], "the newest job"),
        (["upload", JOB], f"send the outputs of job {JOB} from its nodes to where its job file says"),
        (["data.get", BLOB], f"download {BLOB} into train, or into "),
        (["data.get", BLOB, "x", "--overwrite"], "replace files there that have other content"),
        (["data.get", BLOB, "x"], "refuse to replace files there that have other content"),
        (["data.stage", BLOB, "--nodes", "1"], f"bring {BLOB} to node000001"),
        (["data.register", "there.yml"], "make azureml:there:7: "),
        (["environment.rm", "1e5f"], "begins with 1e5f from node[000000-000001], unless a job uses it"),
        (["rehearsal.fault", "death", "--nodes", "1"], "in stack dev, on nodes 1: death, "),
        (["rehearsal.fault", "clear"], "clear all faults"),
        (["rehearsal.stop"], "no rehearsal runs here"),
        (["check"], "look at the devices of node[000000-000001]"),
        (["check", "--deep", "--svg", "x.svg"], "measure by nccl, in jobs on those that are idle"),
        (["check", "--deep", "--pairs"], "every pair of them"),
        (["check", "--first-day"], "write a report into the stack's folder"),
    ],
)
def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    workplace: Path, words: list[str], expected: str
) -> None:
    before = sorted(workplace.rglob("*"))
    ran = fab(workplace, *words, "--dry-run", env=without_connections(workplace.parent))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert expected in ran.stdout
    assert sorted(workplace.rglob("*")) == before


def test_the_steps_of_a_dry_run_come_as_json_too(workplace: Path) -> None:
    ran = fab(workplace, "cancel", JOB, "--dry-run", "--json", env=without_connections(workplace.parent))
    assert len(json.loads(ran.stdout)) == 2


@pytest.mark.parametrize("task", ["cancel", "collect", "upload"])
def test_a_dry_run_refuses_what_is_no_job(workplace: Path, task: str) -> None:
    ran = fab(workplace, task, "../../etc", "--dry-run")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is not a job's id" in ran.stderr


def test_data_of_this_machine_are_not_uploaded_in_a_dry_run(workplace: Path) -> None:
    file = workplace / ".ranklift" / "dev" / INVENTORY_FILE
    saved = file.read_text()
    file.write_text(json.dumps({**json.loads(saved), "blob_endpoint": "https://acc.blob.core.windows.net/"}))
    ran = fab(workplace, "data.register", "iris.yml", "--dry-run", env=without_connections(workplace.parent))
    file.write_text(saved)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "/iris.csv to https://acc.blob.core.windows.net/data/assets/iris/1/iris.csv\n" in ran.stdout
    assert not (workplace / "data").exists()


def test_a_rehearsals_start_and_end_are_told_without_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "check", lambda: None)
    (python := tmp_path / "venv" / "bin" / "python").parent.mkdir(parents=True)
    python.touch()
    begin, path = control.start_steps(tmp_path, 3, tmp_path / "venv")
    assert "for up to 3 nodes" in begin
    assert f"{tmp_path}/venv/bin first" in path
    assert not Folder(tmp_path).root.parent.exists()
    Folder(tmp_path).root.mkdir(parents=True)
    assert control.start_steps(tmp_path, 3)[0].startswith("remove, left by a killed rehearsal: ")
    assert control.stop_steps(tmp_path)[0].startswith("remove, left by a killed rehearsal: ")
    with pytest.raises(InputError, match="must be at least 1"):
        control.start_steps(tmp_path, 0)
