"""``fab init``: a project folder and a fabfile in a user's own repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launch.project_folder import is_project
from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import fab, without_connections

LINES = ("from playbooks import ns", 'ns.configure({"ranklift": {"project": "cluster"}})')


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository with a script and no fabfile."""
    repository = tmp_path / "own"
    (repository / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", repository], check=True)
    (repository / "train.py").write_text("print('hi')\n")
    return repository


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_a_repository_is_made_ready_from_anywhere_in_it_and_once(own: Path) -> None:
    made = fab(own / "src", "init")
    assert (made.returncode, made.stderr) == (0, "")
    there = files(own)
    assert there["fabfile.py"].split("\n\n") == [LINES[0], f"{LINES[1]}\n"]
    assert is_project(own / "cluster")
    written = {line.removeprefix(f"wrote  {own}/") for line in made.stdout.splitlines() if "wrote" in line}
    assert written == {*there} - {"train.py"}
    again = fab(own, "init")
    assert again.returncode == 0
    assert "wrote" not in again.stdout
    assert files(own) == there
    assert fab(own, "init", "--dry-run").stdout == "nothing: all files are there\n"
    status = subprocess.run(["git", "status", "-s"], cwd=own, capture_output=True, text=True, check=True)
    assert status.stdout == "?? cluster/\n?? fabfile.py\n?? train.py\n"


def test_a_dry_run_lists_what_is_missing_and_starts_nothing(own: Path, tmp_path: Path) -> None:
    before = files(own)
    ran = fab(own, "init", "--dry-run", env=without_connections(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert f"write {own}/cluster/Pulumi.yaml\n" in ran.stdout
    assert files(own) == before


def test_what_an_interrupted_run_has_not_written_the_next_one_writes(own: Path) -> None:
    fab(own, "init")
    there = files(own)
    for gone in ("fabfile.py", "cluster/Pulumi.yaml", "cluster/__main__.py"):
        (own / gone).unlink()
    (own / "cluster" / ".new-__main__.py.00").write_text("import run")
    assert fab(own, "init").returncode == 0
    assert files(own) == there


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("cluster/Pulumi.yaml", "name: web\nruntime: nodejs\n", "name: ranklift"),
        ("cluster/__main__.py", "print('mine')\n", 'runpy.run_module("infra", run_name="__main__")'),
        ("cluster/.gitignore", "*.bin\n", ".ranklift/"),
        ("fabfile.py", "from invoke import task\n", LINES[1]),
        ("fabfile.py", LINES[0] + "\n" + LINES[1].replace("cluster", "~/ranklift") + "\n", LINES[1]),
        ("fabfile/__init__.py", "", LINES[1]),
    ],
)
def test_a_file_that_does_not_serve_is_refused_with_its_line_and_nothing_is_written(
    own: Path, name: str, text: str, line: str
) -> None:
    (own / name).parent.mkdir(exist_ok=True)
    (own / name).write_text(text)
    before = files(own)
    ran = fab(own, "init")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"file = '{own / name}': is there and lacks a line like {line}; add it" in ran.stderr
    assert files(own) == before
    (own / name).write_text(f"{text}{LINES[0]}\n{line}\n" if "fabfile" in name else f"{line}\n{text}")
    ran = fab(own, "init")
    assert ran.returncode == 0, ran.stderr
    assert f"kept   {own / name}\n" in ran.stdout


def test_a_folder_of_other_files_is_left_alone_and_another_can_be_named(own: Path) -> None:
    (own / "cluster").mkdir()
    (own / "cluster" / "kmeans.py").touch()
    ran = fab(own, "init")
    assert ran.returncode == 2
    assert f"folder = '{own}/cluster': has files of its own, like kmeans.py" in ran.stderr
    assert fab(own, "init", "--folder", "ops/azure").returncode == 0
    assert is_project(own / "ops" / "azure")
    assert '"project": "ops/azure"' in (own / "fabfile.py").read_text()


@pytest.mark.parametrize("folder", ["", ".", "..", "/tmp/x", "a/../../b", ".git/x", 'a"b', "-x", "a b"])
def test_a_folder_outside_of_the_repository_is_refused(own: Path, folder: str) -> None:
    ran = fab(own, "init", "--folder", folder)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--folder = " in ran.stderr


@pytest.mark.parametrize("link", ["cluster", "cluster/images", "fabfile"])
def test_nothing_is_written_outside_through_the_repositorys_links(
    own: Path, tmp_path_factory: pytest.TempPathFactory, link: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (own / link).parent.mkdir(exist_ok=True)
    (own / link).symlink_to(outside)
    ran = fab(own, "init")
    assert ran.returncode == 2
    assert f"by a link, outside of {own}" in ran.stderr
    assert [*outside.iterdir()] == []


def test_what_is_in_the_way_is_named(own: Path) -> None:
    (own / "cluster").write_text("")
    ran = fab(own, "init")
    assert ran.returncode == 2
    assert f"'{own}/cluster" in ran.stderr
    (own / "cluster").unlink()
    (own / "cluster").mkdir()
    (own / "cluster" / "Pulumi.yaml").symlink_to("nowhere")
    ran = fab(own, "init")
    assert f"file = '{own}/cluster/Pulumi.yaml': is a link to nothing; remove it" in ran.stderr
    assert not (own / "fabfile.py").exists()


def test_a_project_folder_needs_no_other(own: Path) -> None:
    (own / "Pulumi.yaml").write_text("name: ranklift\n")
    ran = fab(own / "src", "init")
    assert ran.returncode == 2
    assert f"{own} is a project folder already; cd to a repository of your own" in ran.stderr


def test_a_users_own_task_of_that_name_is_theirs(own: Path) -> None:
    (own / "fabfile.py").write_text("from invoke import task\n\n\n@task\ndef init(c):\n    print('mine')\n")
    assert fab(own, "init").stdout == "mine\n"


def test_a_push_of_the_repository_takes_nothing_of_the_project_folder(own: Path, tmp_path: Path) -> None:
    fab(own, "init")
    folder = own / "cluster" / ".ranklift" / "dev"
    save_stack(folder, {0: 22}, make_key(tmp_path / "host"), make_key(tmp_path / "user"))
    (own / "cluster" / "Pulumi.dev.yaml").write_text("config: {}\n")
    ran = fab(own / "src", "push", "--dry-run")
    assert ": 2 files, " in ran.stdout, ran.stderr  # fabfile.py and train.py
    own_keys = subprocess.run(
        ["git", "status", "-s", "-uall"], cwd=own, capture_output=True, text=True, check=True
    )
    assert ".ranklift/" not in own_keys.stdout


def test_an_image_is_built_with_the_project_folders_program(own: Path) -> None:
    fab(own, "init")
    program = own / "cluster" / "images" / "build"
    ran = fab(own, "image.build", "--stack", "gpu", "--dry-run")
    assert f"has no Pulumi.gpu.yaml in {program}" in ran.stderr
    (program / "Pulumi.gpu.yaml").write_text("config: {}\n")
    ran = fab(own, "image.build", "--stack", "gpu", "--dry-run")
    assert ran.stdout == f"pulumi -C {program} up --yes --stack gpu\n"
    (program / "Pulumi.yaml").unlink()
    ran = fab(own, "image.build", "--stack", "gpu", "--dry-run")
    assert f"project = '{program}': has no Pulumi.yaml; `fab init` writes" in ran.stderr
