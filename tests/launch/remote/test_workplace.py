"""A node's side of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.remote import workplace

SPEC: dict[str, Any] = {
    "job": "t-1",
    "folder": "~/.ranklift/jobs/t-1",
    "cwd": "~/code",
    "hostfile": "node000000 slots=1\n",
    "drop": ["OMPI_"],
    "defaults": {"A": "default", "B": "default", "C": "default"},
    "files": {"TOPOLOGY": "/etc/hostname", "OTHER": "/no/such/file"},
    "paths": {"OUT": "~/x"},
    "env": {"B": "job", "C": "job"},
    "user_env": {"C": "user"},
    "slots": [0, 1],
    "of": 4,
    "python": "python3",
    "outputs": [],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "code").mkdir()
    return tmp_path


def test_who_wins_in_the_environment(home: Path) -> None:
    env = workplace.environment(SPEC, {"env": {"RANK": "1"}}, {"A": "node", "PATH": "/none", "OMPI_X": "1"})
    assert env == {
        "A": "node", "B": "job", "C": "user", "RANK": "1",
        "PATH": f"/none:{home}/.ranklift/jobs/t-1/bin",
        "TOPOLOGY": "/etc/hostname", "OUT": f"{home}/x",
    }  # fmt: skip


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
    assert workplace.expand([text], ["RANK", "LOCAL", "UNSET"], env) == [expanded]


def test_outputs_in_the_code_leads_to_the_newest_jobs(home: Path) -> None:
    for job in ("t-1", "t-2"):
        workplace.prepare({**SPEC, "folder": f"~/.ranklift/jobs/{job}"})
        assert (home / "code/outputs").resolve() == home / ".ranklift/jobs" / job / "outputs"


def test_outputs_that_were_pushed_stay(home: Path) -> None:
    (home / "code/outputs").mkdir()
    workplace.prepare(SPEC)
    assert not (home / "code/outputs").is_symlink()
