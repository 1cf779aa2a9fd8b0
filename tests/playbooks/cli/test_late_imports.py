"""What Invoke imports at its first use only works as if it had been imported at the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.playbooks.typed import FAB, ROOT

_FABFILE = """\
from invoke import Context, MockContext, Result, task

@task
def mocked(context: Context) -> None:
    mock = MockContext(run=Result("fake"))
    print(mock.run("ls").stdout)
    mock.run.assert_called_once_with("ls")

@task
def configured(context: Context) -> None:
    print(context.config.mine.colour)
"""


@pytest.mark.parametrize(("task", "printed"), [("mocked", "fake"), ("configured", "blue")])
def test_tasks_of_a_users_own_use_them(tmp_path: Path, task: str, printed: str) -> None:
    (tmp_path / "fabfile.py").write_text(_FABFILE)
    (tmp_path / "fabric.yaml").write_text("mine:\n  colour: blue\n")
    ran = subprocess.run(
        [sys.executable, FAB, task],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{printed}\n", "")


def test_python_imports_them_as_always_afterwards() -> None:
    code = """
import sys
from playbooks.cli.late_imports import imported_at_first_use
finders = list(sys.meta_path)
with imported_at_first_use():
    import invoke
assert sys.meta_path == finders and "unittest.mock" not in sys.modules
import unittest.mock
assert isinstance(unittest.mock.Mock, type)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
