"""What a dry run says of a job that installs packages: jobs share environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import fab, write_project

NOTE = (
    " install: jobs share the environment requirements.txt, which is read-only: list packages there; "
    "those listed are found\n"
)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a script and requirements; nobody asks its node."""
    top = tmp_path_factory.mktemp("workplace")
    write_project(top, "dev", fabfile=True)
    keys = tmp_path_factory.mktemp("keys")
    save_stack(top / ".ranklift/dev", {0: 22}, make_key(keys / "host"), make_key(keys / "user"))
    (top / "train.py").touch()
    (top / "requirements.txt").write_text("numpy\n")
    return top


@pytest.mark.parametrize(
    "command",
    [
        "pip install -r requirements.txt && python train.py",
        "python -m pip install -q six; python train.py",
        "timeout 9 bash -c 'uv pip install six' && python train.py",
        "conda install -y six && python train.py",
    ],
)
def test_a_command_that_installs_into_what_jobs_share_is_named(workplace: Path, command: str) -> None:
    (workplace / "job.yml").write_text(f"code: .\ncommand: {command}\n")
    shared = fab(workplace, "launch", "job.yml", "--requirements", "requirements.txt", "--dry-run")
    assert NOTE in shared.stdout
    for words in (["--image", "docker.io/library/python:3.12"], []):
        assert "read-only" not in fab(workplace, "launch", "job.yml", *words, "--dry-run").stdout


def test_a_package_of_the_code_itself_needs_no_installation(workplace: Path) -> None:
    (workplace / "job.yml").write_text("code: .\ncommand: pip install -q -e . && python train.py\n")
    ran = fab(workplace, "launch", "job.yml", "--requirements", "requirements.txt", "--dry-run")
    own = "which is read-only: for a package of the code itself, set PYTHONPATH to the folder that has it\n"
    assert f"note       pip install: jobs share the environment requirements.txt, {own}" in ran.stdout


def test_a_setup_line_and_a_launch_without_a_job_file_are_named_too(workplace: Path) -> None:
    own = "ranklift: {setup: pip install six}"
    (workplace / "job.yml").write_text(f"code: .\ncommand: python train.py\n{own}\n")
    options = ("--requirements", "requirements.txt", "--dry-run")
    assert NOTE in fab(workplace, "launch", "job.yml", *options).stdout
    assert NOTE in fab(workplace, "launch.torch", "bash -c 'pip install six'", *options).stdout
