"""Variables that a line sets in front of its program: they become the ranks', as those of ``--env``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.playbooks.jobs.test_launch_words import workplace
from tests.playbooks.typed import fab

__all__ = ["workplace"]


@pytest.mark.parametrize(
    ("task", "options", "line", "env"),
    [
        ("launch.torch", [], "WANDB_MODE=offline python train.py X=1", {"WANDB_MODE": "offline"}),
        ("launch.torch", [], "NCCL_DEBUG=INFO NOTE='a b' torchrun train.py",
         {"NCCL_DEBUG": "INFO", "NOTE": "a b"}),
        ("launch.torch", ["--torchrun"], "LR= train.py", {"LR": ""}),
        ("launch.torch", ["--env", "A=1"], "B=x=y -m json.tool", {"A": "1", "B": "x=y"}),
        ("launch.mpi", [], "PYTHONPATH=. train.py", {"PYTHONPATH": "."}),
        ("launch.tensorflow", [], "A=1 train.py", {"A": "1"}),
    ],
)  # fmt: skip
def test_they_are_variables_of_every_rank(
    workplace: Path, task: str, options: list[str], line: str, env: dict[str, str]
) -> None:
    ran = fab(workplace, task, "--dry-run", "--json", *options, line)
    assert ran.returncode == 0, ran.stderr
    plan = json.loads(ran.stdout)
    assert [*plan["user_env"]] == [*env], "their values are in no plan"
    assert not any(word.startswith(tuple(f"{name}=" for name in env)) for word in plan["argv"])
    names = ", ".join(name for name in env if f"{name}=" in line)
    assert f"{names}: set for every rank, as --env does" in ran.stderr


@pytest.mark.parametrize(
    ("options", "line", "expected"),
    [
        ([], "MASTER_PORT=29500 python train.py", "env MASTER_PORT: is set by the launcher for every rank"),
        ([], "RANKLIFT_X=1 python train.py", "env RANKLIFT_X: is kept for Ranklift's own variables"),
        (["--env", "A=1"], "A=2 python train.py", "--env = 'A': is given a second time"),
        ([], "OUT=$HOME/x python train.py", "by --env OUT=VALUE, or write the line as bash -c"),
        ([], "HF_HOME=~/hf python train.py", "no shell reads this line"),
        ([], "N=`nproc` python train.py", "no shell reads this line"),
        ([], "PATH+=:/x python train.py", "no shell reads this line"),
        ([], "A=1 B=2", "sets variables and runs nothing"),
        ([], "A=1; python train.py", "; would be an argument of the script: no shell reads this line"),
        ([], "A=1 nix.py", "is not in the pushed code"),
    ],
)  # fmt: skip
def test_what_a_shell_would_make_of_them_alone_is_refused(
    workplace: Path, options: list[str], line: str, expected: str
) -> None:
    ran = fab(workplace, "launch.torch", "--dry-run", *options, line)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert expected in ran.stderr


def test_a_line_for_a_shell_keeps_them(workplace: Path) -> None:
    line = "OUT=$HOME/x torchrun train.py"
    ran = fab(workplace, "launch.torch", "--dry-run", "--json", "--per-node", line)
    plan = json.loads(ran.stdout)
    assert line in plan["argv"][-1]
    assert not plan["user_env"]
