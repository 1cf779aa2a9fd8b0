"""How uv is called for an environment of packages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.remote.environment import python_env
from launch.remote.environment.build import Failed
from launch.remote.store.store import Store
from tests.launch.remote.environment.image_requests import request, unreported

UV = """#!/bin/sh
[ "$1" = --version ] && { echo uv 99.0.0; exit; }
echo "$*; $UV_FIND_LINKS" >>"$CALLS"
"""


def test_the_nodes_own_folder_of_wheels_counts_beside_those_that_are_sent_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PIP_FIND_LINKS", "https://user:secret@example.org/wheels")
    wanted = request("", "", kind="python")
    wanted["requirements"], wanted["find_links"] = "toolkit\n", ["aa" * 8]
    python_env.make(wanted, str(tmp_path / "made"), 2, unreported)
    _, installing, _ = (tmp_path / "calls").read_text().splitlines()
    argv, _, places = installing.partition("; ")
    assert places == f"{Store().path('aa' * 8)},https://user:secret@example.org/wheels"
    assert "find-links" not in argv, "a login would stand on a command line, and uv ignore the variable"


def test_no_index_is_asked_where_the_nodes_settings_close_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv has no variable for that: uv 0.13 passes over UV_NO_INDEX."""
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    for name, value in {"HOME": str(tmp_path), "CALLS": str(tmp_path / "calls"), "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wanted = request("", "", kind="python")
    wanted["requirements"] = "toolkit\n"
    python_env.make(wanted, str(tmp_path / "made"), 2, unreported)
    _, *installing = (tmp_path / "calls").read_text().splitlines()
    assert len(installing) == 2, "the packages, and pip"
    assert all("--no-index" in line for line in installing)


def test_what_uv_says_of_a_file_without_a_name_is_said_of_the_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv").write_text(f'{UV}[ "$1" = venv ] || {{ echo "in \\`$7\\` and \\`$9\\`"; exit 2; }}\n')
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    wanted = request("", "", kind="python")
    wanted["requirements"], wanted["constraints"] = "toolkit\n", "six\n"
    with pytest.raises(Failed) as caught:
        python_env.make(wanted, str(tmp_path / "made"), 2, unreported)
    assert caught.value.lines == ["in `the requirements` and `the constraints`"]


@pytest.mark.parametrize("wanted", [">=3." + "9" * 5000, "9" * 5000, "3.٣"], ids=["minor", "major", "other"])
def test_a_version_of_digits_that_none_has_is_refused_not_counted(wanted: str) -> None:
    with pytest.raises(Failed, match=r"is not a version such as 3\.10"):
        python_env.fits("3.10.12", wanted)
