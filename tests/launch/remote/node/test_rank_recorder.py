"""The variables of PyTorch's flight recorder, as the check of a job's Python finds that they can be set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.remote.node.rank_recorder import look, remove_pipes, variables

PIPE, FILE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE"


def looked(folder: Path, **env: str) -> bytes:
    """What the check prints."""
    done = subprocess.run(
        [sys.executable, "-c", look(str(folder))], env=env, capture_output=True, check=True, timeout=60
    )
    return done.stdout


def given(folder: Path, version: str = "2.11.0+cu130", **env: str) -> dict[str, str]:
    """What ranks get in such an environment."""
    found, why = variables(looked(folder, **env), version, str(folder))
    assert why == ""
    return found


def test_ranks_get_a_pipe_and_a_file_in_the_jobs_folder(tmp_path: Path) -> None:
    prefix = f"{tmp_path}/recorder/"
    assert given(tmp_path) == {PIPE: prefix, FILE: prefix}
    assert list((tmp_path / "recorder").iterdir()) == []
    assert (tmp_path / "recorder").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("name", "left"),
    [
        (PIPE, {FILE}),
        ("TORCH_FR_DEBUG_INFO_PIPE_FILE", {FILE}),
        (FILE, {PIPE}),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", {PIPE}),
        ("TORCH_FR_BUFFER_SIZE", {PIPE, FILE}),
    ],
)
def test_what_is_set_already_stays_by_either_name(tmp_path: Path, name: str, left: set[str]) -> None:
    """The newer of two names would win over the user's older one."""
    assert set(given(tmp_path, **{name: "1"})) == left


def test_pytorch_2_8_makes_a_pipe_only_with_a_size(tmp_path: Path) -> None:
    name = "TORCH_NCCL_TRACE_BUFFER_SIZE"
    assert given(tmp_path, "2.8.0")[name] == "2000"
    assert name not in given(tmp_path, "2.8.0", **{name: "0"})
    assert name not in given(tmp_path, "2.9.0")


@pytest.mark.parametrize("version", ["2.7.1+cu126", "1.13.1", "", "unknown", "2"])
def test_an_older_pytorch_gets_none(tmp_path: Path, version: str) -> None:
    assert given(tmp_path, version) == {}


def test_where_no_pipe_can_be_made_the_reason_is_given(tmp_path: Path) -> None:
    (tmp_path / "recorder").write_text("a file")
    found, why = variables(looked(tmp_path), "2.11.0", str(tmp_path))
    assert found == {}
    assert why.startswith("no pipe: [Errno 17] File exists")


def test_pipes_are_removed_and_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "recorder"
    folder.mkdir()
    os.mkfifo(folder / "0.pipe")
    (folder / "0").write_text("a record")
    remove_pipes(str(tmp_path))
    remove_pipes(str(tmp_path / "none"))
    assert [one.name for one in folder.iterdir()] == ["0"]
