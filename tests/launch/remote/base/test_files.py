"""Paths on a node."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launch.remote.base import files
from launch.remote.base.records import NodeExit


class TestACheckForRoom:
    def test_writes_through_no_link_that_somebody_left_there(self, tmp_path: Path) -> None:
        theirs = tmp_path / "theirs"
        theirs.write_text("kept")
        link = tmp_path / f".ranklift-{os.getpid()}"
        link.symlink_to(theirs)
        assert files.unwritable(str(tmp_path)) == []
        assert (theirs.read_text(), link.is_symlink()) == ("kept", True)

    def test_opens_nothing_that_is_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "urandom", bytes)
        theirs = Path(files.temporary_name(f"{tmp_path}/.ranklift"))
        theirs.symlink_to(tmp_path / "elsewhere")
        assert files.unwritable(str(tmp_path)) == [f"{tmp_path} cannot be written: File exists"]
        assert not (tmp_path / "elsewhere").exists()
        assert theirs.is_symlink()

    def test_leaves_nothing(self, tmp_path: Path) -> None:
        assert files.unwritable(str(tmp_path), f"{tmp_path}/none") == [
            f"{tmp_path}/none cannot be written: No such file or directory"
        ]
        assert list(tmp_path.iterdir()) == []


def test_temporary_files_of_processes_with_one_number_are_two() -> None:
    assert files.temporary_name("/shared/file") != files.temporary_name("/shared/file")


def test_the_line_of_an_exit_is_the_record_that_its_type_describes(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "exits.jsonl", os.O_WRONLY | os.O_CREAT)
    files.write_exit(handle, 3, 137, stopped=True)
    os.close(handle)
    written = json.loads((tmp_path / "exits.jsonl").read_text())
    assert set(written) == set(NodeExit.__annotations__)
    assert (written["rank"], written["status"], written["stopped"]) == (3, 137, True)
