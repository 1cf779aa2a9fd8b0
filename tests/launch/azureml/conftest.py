"""A folder to submit from, with a fabfile, a script, and a fake ``fab``, and a run with its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.azureml import Experiment, Run, ScriptRunConfig, Workspace, notices
from tests.launch.azureml.fake_fab import FakeFab, install


@pytest.fixture
def fab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFab:
    """The current folder is an operator's repository with ``src/train.py``."""
    own = tmp_path / "own"
    (own / "src" / "text-classification").mkdir(parents=True)
    (own / "fabfile.py").write_text("from playbooks import ns\n")
    (own / "src" / "train.py").write_text("print('hello')\n")
    (own / "src" / "text-classification" / "run_glue.py").write_text("print('glue')\n")
    monkeypatch.chdir(own)
    monkeypatch.setattr(notices, "_written", set())
    for name in ("RANKLIFT_STACK", "RANKLIFT_PYTHON", "RANKLIFT_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return install(tmp_path / "bin", monkeypatch)


@pytest.fixture
def run(fab: FakeFab) -> Run:
    return Experiment(Workspace.from_config(), "experiment_name").submit(
        ScriptRunConfig("src", "train.py", compute_target="dev"), tags={"lr": "0.1"}
    )


@pytest.fixture
def files(fab: FakeFab) -> FakeFab:
    fab.file("job.json", "{}")
    for rank in range(4):
        fab.file(f"logs/rank-{rank}.log", f"rank {rank}\n")
    fab.file("outputs/node000000/model.pt", "of the head")
    fab.file("outputs/node000000/same.txt", "same")
    fab.file("outputs/node000000/deep/er/x.txt", "x")
    fab.file("outputs/node000001/model.pt", "of the other")
    fab.file("outputs/node000001/same.txt", "same")
    fab.file("outputs/node000001/only.txt", "there")
    return fab
