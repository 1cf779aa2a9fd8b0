"""Where the ``fab`` program and the project are found."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.azureml.program import Fab
from launch.errors import MissingTool
from tests.launch.azureml.fake_fab import PYTHON, FakeFab


def test_a_task_runs_in_the_current_folder_with_the_users_fabfile(
    fab: FakeFab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("src")
    assert Fab(None).json("cancel", "x") == {}
    assert fab.calls == [{"words": ["cancel", "x", "--json"], "cwd": str(Path.cwd())}]


def test_without_a_fabfile_the_tasks_are_ranklifts_alone(
    fab: FakeFab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    Fab("dev").json("cancel", "x")
    (call,) = fab.calls
    assert call["words"] == ["cancel", "x", "--json", "--stack", "dev"]
    assert (call["cwd"], call["fabfile"]) == (str(elsewhere), "from playbooks import ns\n")


def test_the_program_on_path_will_do_and_none_at_all_is_an_error(
    fab: FakeFab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(fab.folder))
    assert Fab(None).run(["cancel", "x"]).status == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match=r"^fab is missing: install Ranklift into the environment of"):
        Fab(None).run(["cancel", "x"])


def test_what_is_no_json_is_shown(fab: FakeFab) -> None:
    fab.answer("cancel", out="job x CANCELLED\n")
    with pytest.raises(Exception, match=r"`fab cancel` did not print JSON but: job x CANCELLED"):
        Fab(None).json("cancel", "x")


def test_lines_come_as_they_are_written(fab: FakeFab) -> None:
    seen: list[str] = []
    fab.answer("logs", out="a\nb\nhalf", err="note\nerror: first\n  second\n")
    notes: list[str] = []
    answer = Fab(None).run(["logs"], seen.append, notes.append)
    assert (seen, notes, answer.error) == (["a", "b", "half"], ["note"], "error: first\n  second")


def test_interrupting_a_wait_ends_the_task_with_it(fab: FakeFab, tmp_path: Path) -> None:
    program = fab.folder / "fab"
    program.write_text(
        f"#!{PYTHON}\nimport pathlib, time\ntry:\n    print('here', flush=True)\n    time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    pathlib.Path({str(tmp_path / 'interrupted')!r}).touch()\n"
    )
    script = (
        f"import sys; sys.executable = {str(fab.folder / 'python')!r}\n"
        "from launch.azureml.program import Fab\n"
        "Fab(None).run(['logs'], lambda line: print(line, flush=True))\n"
    )
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [PYTHON, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": str(root)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    deadline = time.monotonic() + 10
    while not (tmp_path / "interrupted").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
