"""Where a launch looks for the requirements, conda file or folder of wheels that an option names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import fab, write_project


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A project to launch from, beside the folder ``code`` with a script; nobody asks its node."""
    here = tmp_path / "here"
    (here / "jobs/src").mkdir(parents=True)
    write_project(here, "dev", fabfile=True)
    keys = tmp_path / "keys"
    keys.mkdir()
    save_stack(here / ".ranklift/dev", {0: 22}, make_key(keys / "host"), make_key(keys / "user"))
    (tmp_path / "code").mkdir()
    for folder in ("code", "here/jobs/src"):
        (tmp_path / folder / "train.py").write_text("print('hi')\n")
    (here / "jobs/job.yml").write_text("command: python train.py\ncode: src\n")
    return here


def launch(here: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return fab(here, "launch.torch", "train.py", "--source", "../code", "--dry-run", *options)


FILES = pytest.mark.parametrize(
    ("option", "file", "text"),
    [
        ("--requirements", "requirements.txt", "{}\n"),
        ("--requirements", "needs/gpu.txt", "{}\n"),
        ("--conda", "conda.yml", "dependencies: [pip: [{}]]\n"),
    ],
)


def write(folder: Path, file: str, text: str) -> str:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@FILES
def test_the_file_of_the_pushed_folder_is_taken_and_its_full_path_printed(
    here: Path, option: str, file: str, text: str
) -> None:
    taken = write(here.parent / "code", file, text.format("numpy"))
    ran = launch(here, option, file)
    assert ran.returncode == 0, ran.stderr
    assert f"note       {option} {file}: {taken}\n" in ran.stdout


@FILES
def test_the_file_of_the_current_folder_is_taken_where_the_pushed_folder_has_none(
    here: Path, option: str, file: str, text: str
) -> None:
    (here.parent / "code" / file).mkdir(parents=True)  # a folder is no such file
    taken = write(here, file, text.format("numpy"))
    ran = launch(here, option, file)
    assert ran.returncode == 0, ran.stderr
    assert f"note       {option} {file}: {taken}\n" in ran.stdout


@FILES
def test_two_files_that_differ_are_refused_with_both_paths_and_a_full_path_is_taken(
    here: Path, option: str, file: str, text: str
) -> None:
    pushed = write(here.parent / "code", file, text.format("numpy"))
    own = write(here, file, text.format("torch"))
    ran = launch(here, option, file)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{option} = '{file}': is {pushed} or {own}, which differ; give the full path of " in ran.stderr
    assert launch(here, option, own).returncode == 0


def test_two_files_of_the_same_content_are_no_question(here: Path) -> None:
    pushed = write(here.parent / "code", "requirements.txt", "numpy\n")
    write(here, "requirements.txt", "numpy\n")
    assert (
        f"--requirements requirements.txt: {pushed}\n"
        in launch(here, "--requirements", "requirements.txt").stdout
    )


def test_a_file_of_neither_folder_is_refused_with_both_folders(here: Path) -> None:
    ran = launch(here, "--requirements", "none.txt")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert (
        f"'none.txt': there is no such file in {here.parent}/code, nor in {here}; give the full" in ran.stderr
    )


def test_folders_of_wheels_are_looked_for_in_the_same_way(here: Path) -> None:
    write(here.parent / "code", "requirements.txt", "numpy\n")
    words = ("--requirements", "requirements.txt", "--find-links", "wheels")
    pushed, own = here.parent / "code/wheels", here / "wheels"
    pushed.mkdir()
    assert f"wheels of {pushed}\n" in launch(here, *words).stdout
    own.mkdir()
    assert f"--find-links = 'wheels': is {pushed} or {own}, which differ" in launch(here, *words).stderr
    own.rmdir()
    own.symlink_to(pushed)
    assert launch(here, *words).returncode == 0


@pytest.mark.parametrize("folder", ["jobs/src", "jobs", "."])
def test_an_option_over_a_job_files_environment_is_looked_for_beside_the_code_the_file_and_here(
    here: Path, folder: str
) -> None:
    taken = write(here / folder, "requirements.txt", "numpy\n")
    words = ("launch", "jobs/job.yml", "--requirements", "requirements.txt", "--dry-run")
    assert f"--requirements requirements.txt: {os.path.normpath(taken)}\n" in fab(here, *words).stdout
    other = here / ("jobs" if folder == "." else ".")
    write(other, "requirements.txt", "torch\n")
    ran = fab(here, *words)
    assert ran.returncode == 2
    assert "which differ; give the full path" in ran.stderr


def test_paths_in_a_job_file_start_at_the_job_file_alone(here: Path) -> None:
    write(here / "jobs", "requirements.txt", "numpy\n")
    write(here, "requirements.txt", "torch\nnumpy\n")
    write(here / "jobs/src", "requirements.txt", "torch\nnumpy\nscipy\n")
    job = here / "jobs/job.yml"
    job.write_text(job.read_text() + "ranklift: {environment: {requirements: requirements.txt}}\n")
    ran = fab(here, "launch", "jobs/job.yml", "--dry-run")
    assert "runs in    requirements.txt: 1 package of pip\n" in ran.stdout
