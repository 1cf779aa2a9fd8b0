"""A node's side of a job."""

from __future__ import annotations

import os
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


def test_slots_are_held_until_their_holder_lets_go(home: Path) -> None:
    held = workplace.take_slots(SPEC)
    with pytest.raises(workplace.SlotsTaken, match=r"slots \[0, 1\] are held by t-1"):
        workplace.take_slots({**SPEC, "job": "t-2", "slots": [1, 2]})
    for descriptor in held:
        os.close(descriptor)
    for descriptor in workplace.take_slots({**SPEC, "job": "t-2", "slots": [1, 2]}):
        os.close(descriptor)


def test_who_is_refused_learns_of_every_slot_that_others_hold_but_not_of_its_own(home: Path) -> None:
    held = [
        *workplace.take_slots({**SPEC, "job": "t-1", "slots": [0]}),
        *workplace.take_slots({**SPEC, "job": "t-2", "slots": [2]}),
        *workplace.take_slots({**SPEC, "job": "t-3", "slots": [3]}),
    ]
    with pytest.raises(workplace.SlotsTaken) as refused:
        workplace.take_slots({**SPEC, "job": "t-2", "slots": [0]})
    assert refused.value.taken == [(0, "t-1"), (3, "t-3")]
    assert workplace.taken_slots(4) == [(0, "t-1"), (2, "t-2"), (3, "t-3")]
    for descriptor in held:
        os.close(descriptor)
    assert workplace.taken_slots(4) == []
