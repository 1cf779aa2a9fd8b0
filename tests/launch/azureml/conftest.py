"""A folder to submit from, with a fabfile, a script, and a fake ``fab``."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.azureml import notices
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
