"""Which fabfiles a shell's TAB runs: those that are the user's own, or root's, in folders of theirs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch import project_folder
from playbooks.cli import completion


def test_the_title_of_an_environment_commands_neither_shell_nor_terminal(tmp_path: Path) -> None:
    note = tmp_path / ".ranklift/dev/environments/1e5f"
    note.parent.mkdir(parents=True)
    note.write_bytes(b"torch\x1b]52;c;eA==\x07\n$(reboot)\tx\xff")
    table = {"project": str(tmp_path)}
    ((name, title),) = completion._values(table, ":environments", "", "dev")
    assert (name, title) == ("1e5f", "torch^J$(reboot) x\ufffd")


@pytest.fixture
def fabfile(tmp_path: Path) -> Path:
    (tmp_path / "fabfile.py").touch()
    (tmp_path / "below").mkdir()
    return tmp_path / "fabfile.py"


def test_a_fabfile_of_the_user_is_trusted(fabfile: Path) -> None:
    assert project_folder.is_trusted(fabfile)


@pytest.mark.parametrize("at", ["fabfile.py", "."])
def test_a_fabfile_or_a_folder_of_another_user_is_not_trusted(
    fabfile: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() == 0:
        os.chown(fabfile.parent / at, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not project_folder.is_trusted(fabfile)


def test_a_fabfile_that_everybody_may_write_is_not_trusted(fabfile: Path) -> None:
    fabfile.chmod(0o666)
    assert not project_folder.is_trusted(fabfile)


def test_a_link_is_not_trusted_into_a_folder_that_everybody_may_write_in(fabfile: Path) -> None:
    (fabfile.parent / "below" / "fabfile.py").symlink_to(fabfile)
    fabfile.parent.chmod(0o777)
    assert not project_folder.is_trusted(fabfile.parent / "below" / "fabfile.py")


def test_a_package_is_not_trusted_in_a_folder_that_everybody_may_write_in(tmp_path: Path) -> None:
    package = tmp_path / "fabfile"
    package.mkdir()
    (package / "__init__.py").touch()
    assert project_folder.is_trusted(package / "__init__.py")
    tmp_path.chmod(0o777)
    assert not project_folder.is_trusted(package / "__init__.py")
