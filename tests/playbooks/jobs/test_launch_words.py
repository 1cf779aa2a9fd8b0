"""The first word of a launch: a script or a program, and nothing that only looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import fab, write_project


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a script, a job file, data and a folder; nobody asks its node."""
    top = tmp_path_factory.mktemp("workplace")
    write_project(top, "dev", fabfile=True)
    keys = tmp_path_factory.mktemp("keys")
    save_stack(top / ".ranklift" / "dev", {0: 22}, make_key(keys / "host"), make_key(keys / "user"))
    (top / "train.py").write_text("print('hi')\n")
    (top / "job.yml").write_text("command: python train.py\n")
    (top / "data.csv").write_text("1,2\n")
    (top / "tool").write_text("#!/usr/bin/env python3\n")
    (top / "src").mkdir()
    (top / "src" / "other.yaml").write_text("command: ls\n")
    (top / "tool.x").write_text("#!/bin/sh\n")
    (top / "tool.x").chmod(0o755)
    return top


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["launch.torch", "job.yml"],
            "'job.yml': is a job file, not a script; launch it with fab launch.file job.yml",
        ),
        (["launch.mpi", "src/other.yaml --x"], "launch it with fab launch.file src/other.yaml"),
        (["launch.torch", "other.yaml", "--source", "src"], "launch it with fab launch.file src/other.yaml"),
        (["launch.torch", "nix.yml"], "script = 'nix.yml': {top} has no such file; "),
        (["launch.torch", "tain.py"], "{top} has no such file; did you mean train.py?"),
        (["launch.torch", "./nix"], "script = './nix': is not in the pushed code: {top} has no such file; "),
        (
            ["launch.tensorflow", "src"],
            "script = 'src': is a folder; give a script of the folder that is pushed",
        ),
        (["launch.torch", "data.csv"], "script = 'data.csv': is neither a script nor a program; "),
        (["launch", "torch", "train.py"], "launch takes one file; did you mean fab launch.torch train.py?"),
    ],
)
def test_a_word_that_cannot_be_run_is_refused_with_what_was_meant(
    workplace: Path, words: list[str], expected: str
) -> None:
    ran = fab(workplace, *words)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
    assert expected.format(top=workplace) in ran.stderr


@pytest.mark.parametrize(
    "line",
    ["train.py", "hostname", "python3.11 train.py", "./tool.x", "/opt/run", "${{inputs.a}}/run", "~/run"],
)
def test_scripts_and_programs_of_the_nodes_are_taken(workplace: Path, line: str) -> None:
    ran = fab(
        workplace, "launch.mpi", line, "--dry-run", "--input", "a=node:/data" if "inputs" in line else "a=src"
    )
    assert "script = " not in ran.stderr


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            "nix.yml",
            "file = 'nix.yml': no such file; name a job file, e.g. job.yml, or give a script or command",
        ),
        ("src/tain.py", "file = 'src/tain.py': no such file; name a job file"),
        (
            "hostname",
            "file = 'hostname': no such file; name a job file, e.g. job.yml, or give a script or command",
        ),
        ("mpi", "file = 'mpi': no such file; did you mean fab launch.mpi?"),
        ("train.py", "is a script, not a job file; launch it with fab launch.torch train.py"),
        ("src", "file = 'src': is a folder; name a job file"),
        ("tool", "is a script, not a job file; launch it with fab launch.torch tool"),
    ],
)
def test_what_is_no_job_file_is_told_from_one(workplace: Path, word: str, expected: str) -> None:
    ran = fab(workplace, "launch", word)
    assert ran.returncode == 2
    assert expected in ran.stderr
