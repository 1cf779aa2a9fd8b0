"""docs/azure.md: from an empty subscription to a first job and away again, as written there."""

from __future__ import annotations

import re
import shlex
import shutil

import pytest

from tests.e2e.workplace import ROOT, Workplace

pytestmark = pytest.mark.azure

PAGE = (ROOT / "docs" / "azure.md").read_text(encoding="utf-8")
STACK = "rehearsal"
HERE = {
    "dev": STACK,  # only stacks of this name live in a rehearsal
    "ranklift:sshFrom=203.0.113.7/32": "ranklift:sshFrom=127.0.0.1/32",
}
"""What a user puts in for themselves, and what is put in here."""


def ten_commands() -> list[list[str]]:
    """The words of the ten commands, without the remarks behind them."""
    block = PAGE.partition("## Ten commands")[2].split("```")[1]
    return [shlex.split(line, comments=True) for line in block.strip().splitlines()]


def test_they_are_ten_numbered_in_order_and_two_are_for_azures_own_command() -> None:
    block = PAGE.partition("## Ten commands")[2].split("```")[1]
    assert re.findall(r"# (\d+) ", block) == [str(number) for number in range(1, 11)]
    assert [words[0] for words in ten_commands()] == ["az"] * 2 + ["pulumi"] * 3 + ["fab"] * 5


def test_all_but_those_work_as_they_stand_and_leave_nothing(workplace: Workplace) -> None:
    shutil.copytree(ROOT / "examples" / "digits", workplace.own / "examples" / "digits")
    job = "JOB"
    for command in ten_commands():
        words = [
            HERE.get(word, word).replace("JOB", job) if job else HERE.get(word, word) for word in command
        ]
        if words[0] == "az" or words[:2] == ["pulumi", "login"]:
            continue  # who one is and where state is kept: a rehearsal decides both
        ran = workplace.pulumi(*words[1:]) if words[0] == "pulumi" else workplace.fab(*words[1:])
        if words[1] == "plan":
            assert workplace.groups() == set(), "a plan creates nothing"
        if words[1] == "launch.torch":
            assert "test accuracy" in ran.out
            (job,) = (entry["job"] for entry in workplace.fab("jobs", "--json").json())
    assert (workplace.own / "results" / job / "outputs").is_dir()
    assert workplace.groups() == set()
