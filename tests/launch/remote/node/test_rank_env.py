"""The environment and the arguments of a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.remote.base.records import BARE
from launch.remote.node import rank_env

SPEC: Any = {
    "job": "t-1",
    "environment": BARE,
    "folder": "~/.ranklift/jobs/t-1",
    "cwd": "~/.ranklift/jobs/t-1/work",
    "hostfile": "node000000 slots=1\n",
    "drop": ["OMPI_"],
    "defaults": {"A": "default", "B": "default", "C": "default"},
    "files": {"TOPOLOGY": "/etc/hostname", "OTHER": "/no/such/file"},
    "infiniband": 0,
    "paths": {"OUT": "~/x"},
    "env": {"B": "job", "C": "job"},
    "user_env": {"C": "user"},
    "slots": [0, 1],
    "of": 4,
    "restarts": 0,
    "python": "python3",
    "outputs": [],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_who_wins_in_the_environment(home: Path) -> None:
    env = rank_env.environment(SPEC, {"RANK": "1"}, {"A": "node", "PATH": "/none", "OMPI_X": "1"})
    assert env == {
        "A": "node", "B": "job", "C": "user", "RANK": "1",
        "PATH": f"/none:{home}/.ranklift/jobs/t-1/bin",
        "TOPOLOGY": "/etc/hostname", "OUT": f"{home}/x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("env", "named"),
    [({}, {"VIRTUAL_ENV": "/envs/e"}), ({"CONDA_PREFIX": "/envs/e"}, {"CONDA_PREFIX": "/envs/e"})],
)
def test_an_environment_of_venv_or_conda_is_first_on_path_and_named(
    home: Path, env: dict[str, str], named: dict[str, str]
) -> None:
    spec: Any = {**SPEC, "python": "/envs/e", "env": env}
    found = rank_env.environment(spec, {}, {"PATH": "/bin", "VIRTUAL_ENV": "/other", "PYTHONHOME": "/usr"})
    assert found["PATH"] == "/envs/e/bin:/bin"
    assert {name: found[name] for name in found if name.endswith(("_ENV", "_PREFIX", "HOME"))} == named


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$RANK", "3"),
        ("--rank=${RANK}", "--rank=3"),
        ("$RANK$RANK/$LOCAL", "33/0"),
        ("$RANKS ${RANK ${RANKS}", "$RANKS ${RANK ${RANKS}"),
        ("$HOME $$ $ ${} $1 50$", "$HOME $$ $ ${} $1 50$"),
        ("`id` $(id)", "`id` $(id)"),
        ("$RANKé", "3é"),
        ("$UNSET", "$UNSET"),
    ],
)
def test_only_the_launchers_own_variables_are_filled_in(text: str, expanded: str) -> None:
    env = {"RANK": "3", "LOCAL": "0", "HOME": "/root"}
    assert rank_env.expand([text], ["RANK", "LOCAL", "UNSET"], env) == [expanded]
