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
    (top / "src" / "run.py").write_text("")
    (top / "src2").mkdir()
    (top / "src2" / "run.py").write_text("")
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
    "line", ["run.py", "./run.py --lr 1", "python run.py", "torchrun run.py", "bash run.py"]
)
def test_a_script_of_the_current_folder_is_the_one_that_was_meant(workplace: Path, line: str) -> None:
    ran = fab(workplace / "src2", "launch.torch", "--dry-run", "--source", str(workplace), line)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"is not in the pushed code: {workplace} has no such file; did you mean src2/run.py?" in ran.stderr
    ran = fab(workplace / "src2", "launch.torch", "--dry-run", "--source", str(workplace / "src"), "train.py")
    assert "script = 'train.py': is not in the pushed code" in ran.stderr
    (workplace / "src2" / "own.py").write_text("")
    ran = fab(workplace / "src2", "launch.torch", "--dry-run", "--source", str(workplace / "src"), "own.py")
    assert "has no such file; give the folder to push: --source ." in ran.stderr


@pytest.mark.parametrize(
    "line",
    ["train.py", "hostname", "python3.11 train.py", "./tool.x", "/opt/run", "${{inputs.a}}/run", "~/run"],
)
def test_scripts_and_programs_of_the_nodes_are_taken(workplace: Path, line: str) -> None:
    ran = fab(
        workplace, "launch.mpi", line, "--dry-run", "--input", "a=node:/data" if "inputs" in line else "a=src"
    )
    assert "script = " not in ran.stderr


@pytest.fixture(scope="module")
def package(workplace: Path) -> Path:
    """The project with a package, whose modules import torch."""
    (workplace / "pkg/cli").mkdir(parents=True)
    for name in ("train", "cli/__init__", "cli/__main__"):
        (workplace / f"pkg/{name}.py").write_text("")
    (workplace / "pkg/__init__.py").write_text("import torch\n")
    return workplace


@pytest.mark.parametrize(
    ("options", "line", "command"),
    [
        ([], ["-m", "pkg.train", "--name", "a b"], "python3 -u -m pkg.train --name 'a b'"),
        ([], ["-mpkg.train"], "python3 -u -m pkg.train"),
        ([], ["--module", "pkg.cli", "$RANK"], "python3 -u -m pkg.cli '${RANK}'"),
        (["--python", "/opt/env"], ["-m", "pkg.train"], "python -u -m pkg.train"),
        (["--per-node"], ["-m", "pkg.train"], "bash -c 'python3 -u -m pkg.train'"),
        (["--torchrun"], ["-m", "pkg.train", "-m"], " --no-python python3 -u -m pkg.train -m"),
    ],
)
def test_a_module_is_launched_as_torchrun_and_python_take_it(
    package: Path, options: list[str], line: list[str], command: str
) -> None:
    ran = fab(package, "launch.torch", "--dry-run", *options, "--", *line)
    assert ran.returncode == 0, ran.stderr
    shown = dict(one.split(None, 1) for one in ran.stdout.split("\n\n")[0].splitlines())
    assert shown["command"].endswith(command)
    assert shown["job"].startswith("cli-" if "pkg.cli" in line else "train-")
    assert shown["needs"] == "torch"


@pytest.mark.parametrize("task", ["launch.mpi", "launch.tensorflow"])
def test_every_launcher_takes_a_module(package: Path, task: str) -> None:
    ran = fab(package, task, "--dry-run", "--", "-m", "pkg.train")
    assert "\ncommand    python3 -u -m pkg.train\n" in ran.stdout


def test_a_launchers_module_is_known_as_the_launcher(package: Path) -> None:
    ran = fab(package, "launch.torch", "--dry-run", "--", "-m", "torch.distributed.run", "train.py")
    assert "one process on each node: torch.distributed.run starts the processes" in ran.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--", "-m", "pkg.tain"],
            "-m = 'pkg.tain': is not in the pushed code: {top} has no pkg/tain.py; did",
        ),
        (["--", "python3", "-m", "pkg.tain"], "'pkg.tain': is not in the pushed code"),
        (
            ["--", "-m", "pkg/train.py"],
            "-m = 'pkg/train.py': is a path, and -m takes a module's name; write -m pkg",
        ),
        (
            ["--", "-m", "train.py"],
            "-m = 'train.py': is a path, and -m takes a module's name; write -m train",
        ),
        (
            ["--", "-m"],
            "script = '-m': is an option; give a script, a program of the nodes, or -m and a module",
        ),
        (["-m", "pkg.train"], "put all of it behind --: fab launch.torch --dry-run -- -m pkg.train\n"),
        (["-m pkg.train"], "put all of it behind --: fab launch.torch --dry-run -- -m pkg.train\n"),
        (
            ["--", "-u", "train.py"],
            "-- = '-u train.py': begins with an option; put options of fab before --, and",
        ),
        (["--", "--nodes", "0", "train.py"], "-- = '--nodes 0 train.py': begins with an option; put"),
        (["--", "-d"], "-- = '-d': begins with an option; put"),
        (
            ["train.py", "--", "--lr", "1"],
            "put all of it behind --: fab launch.torch --dry-run -- train.py --lr 1\n",
        ),
        (
            ["train.py", "--", "--help"],
            "put all of it behind --: fab launch.torch --dry-run -- train.py --help\n",
        ),
        (
            ["train.py", "--", "-m", "x"],
            "put all of it behind --: fab launch.torch --dry-run -- train.py -m x\n",
        ),
    ],
)
def test_an_option_in_a_scripts_place_is_refused_with_what_to_type(
    package: Path, words: list[str], expected: str
) -> None:
    ran = fab(package, "launch.torch", "--dry-run", *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert expected.format(top=package) in ran.stderr


def test_a_module_that_is_not_of_the_code_may_be_installed_on_the_nodes(package: Path) -> None:
    assert fab(package, "launch.torch", "--dry-run", "--", "-m", "trainer.main").returncode == 0


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--help", "x"]])
def test_a_help_option_behind_two_dashes_prints_help_and_starts_nothing(
    package: Path, words: list[str]
) -> None:
    for task in ("launch.torch", "exec"):
        ran = fab(package, task, "--", *words)
        assert ran.returncode == 0
        assert ran.stdout.startswith(f"Usage: fab {task} ")


def test_options_behind_a_script_are_the_scripts(package: Path) -> None:
    ran = fab(package, "launch.torch", "--dry-run", "--", "train.py", "--help", "-m", "x")
    assert "\ncommand    python3 -u train.py --help -m x\n" in ran.stdout


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
