"""Private keys stay on this machine, whichever command and whichever value leads to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.inventory import KEY_FILE
from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import fab, write_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout of the project with a stack ``dev``, which a user works in."""
    project = tmp_path / "all" / "ranklift"
    project.mkdir(parents=True)
    write_project(project, fabfile=True)
    (project / "train.py").write_text("print('hi')\n")
    save_stack(
        project / ".ranklift" / "dev", {0: 22}, make_key(tmp_path / "host"), make_key(tmp_path / "user")
    )
    return project


def test_a_push_takes_no_keys_whatever_ignore_file_there_is(project: Path) -> None:
    for file in (".amlignore", ".ranklift-ignore"):
        (project / file).write_text("!.ranklift/\n!id_ed25519\n")
    for source in (".", ".."):
        ran = fab(project, "push", "--source", source, "--dry-run")
        # Pulumi.yaml, fabfile.py, train.py and the two ignore files
        assert ": 5 files, " in ran.stdout, ran.stderr


def test_a_push_from_inside_is_refused(project: Path) -> None:
    (project / "link").symlink_to(".ranklift/dev")
    for source in (".ranklift", ".ranklift/dev", "link"):
        ran = fab(project, "push", "--source", source, "--dry-run")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "holds a stack's private keys, which never leave this machine" in ran.stderr
    own = {"RANKLIFT_PROJECT": str(project)}
    (project / ".ranklift" / "dev" / "fabfile.py").write_text("from playbooks import ns\n")
    ran = fab(project / ".ranklift" / "dev", "push", "--dry-run", env=own)
    assert ran.returncode == 2
    assert "holds a stack's private keys" in ran.stderr


@pytest.mark.parametrize("values", [{"code": "."}, {"code": ".."}, {"data": "."}, {"data": ".."}])
def test_a_job_file_that_names_the_folder_around_them_takes_all_but_them(
    project: Path, values: dict[str, str]
) -> None:
    lines = ["command: echo hi"]
    if "code" in values:
        lines.append(f"code: {values['code']}")
    else:
        lines.append(f"inputs: {{all: {{type: uri_folder, path: {values['data']}}}}}")
    (project / "job.yml").write_text("\n".join(lines))
    ran = fab(project, "launch", "job.yml", "--dry-run", "--allow-path", "..")
    assert ran.returncode == 0, ran.stderr
    assert KEY_FILE not in ran.stdout
    left_out = f"{'' if values.get('data') == '.' else 'ranklift/'}.ranklift (a stack's private keys)"
    assert (left_out in ran.stdout) == ("data" in values)


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("inputs: {all: {type: uri_file, path: .ranklift/dev/id_ed25519}}", 2),
        ("inputs:\n  all:\n    type: uri_file\n    path: key", 5),
        ("inputs:\n  all: {type: uri_folder, path: .ranklift}", 3),
        ("code: .ranklift/dev", 2),
        ("code: .ranklift/dev/id_ed25519", 2),
    ],
)
def test_a_value_of_a_job_file_that_leads_inside_is_refused_with_its_line(
    project: Path, line: str, number: int
) -> None:
    (project / "key").symlink_to(f".ranklift/dev/{KEY_FILE}")
    (project / "job.yml").write_text(f"command: echo hi\n{line}\n")
    ran = fab(project, "launch", "job.yml", "--dry-run")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"job.yml, line {number}: " in ran.stderr
    assert "holds a stack's private keys, which never leave this machine" in ran.stderr


def test_what_is_no_content_is_named_once_and_hinders_nothing(project: Path) -> None:
    os.mkfifo(project / "b-pipe")
    os.mkfifo(project / "a-pipe")
    (project / "a").symlink_to("b")
    (project / "b").symlink_to("a")
    ran = fab(project, "push", "--source", ".", "--dry-run")
    assert ran.returncode == 0
    assert ran.stderr == "not pushed: a-pipe, b-pipe (pipes, sockets and devices)\n"
    ran = fab(project, "launch.torch", "train.py", "--source", ".", "--dry-run")
    assert ran.returncode == 0
    assert "not pushed: a-pipe, b-pipe" in ran.stdout


def test_what_is_left_out_by_default_is_named_with_its_size_and_the_rule_that_brings_it_back(
    project: Path,
) -> None:
    (project / "env").mkdir()
    (project / "env" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    line = "left out: env (16 B); a line like !env in .ranklift-ignore has it pushed"
    ran = fab(project, "push", "--source", ".", "--dry-run")
    assert ": 3 files, " in ran.stdout
    assert ran.stderr == f"{line}\n"
    ran = fab(project, "launch.torch", "train.py", "--source", ".", "--dry-run")
    assert line in ran.stdout
    (project / ".ranklift-ignore").write_text("!env\n")
    ran = fab(project, "push", "--source", ".", "--dry-run")
    assert ": 5 files, " in ran.stdout
    assert ran.stderr == ""


def test_a_copy_of_a_key_is_named_and_not_pushed(project: Path) -> None:
    (project / "mine").hardlink_to(project / ".ranklift" / "dev" / KEY_FILE)
    ran = fab(project, "push", "--source", ".", "--dry-run")
    assert ": 3 files, " in ran.stdout, ran.stderr
    assert "not pushed: mine (a stack's private keys)" in ran.stderr
