"""Signals to a command that follows a job, the second of which is final; Ctrl-C while no task runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.playbooks.typed import fab, interrupted

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys, time
from playbooks.cli.signals import attached
from invoke.exceptions import Exit
try:
    with attached(lambda number: f"the job goes on after {number}"):
        try:
            print("in", flush=True)
            time.sleep(30)
        finally:
            time.sleep(float(sys.argv[1]))
except Exit as end:
    sys.exit(end.code)
"""


def begun(closing: float = 0.0, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A program that is attached, and needs ``closing`` seconds to leave."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", PROGRAM, str(closing)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    return process


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGINT, "\nthe job goes on after 2\n"),
        (signal.SIGTERM, "the job goes on after 15\n"),
        (signal.SIGHUP, "the job goes on after 1\n"),
    ],
)
def test_each_of_them_says_the_word_and_ends_with_its_number(number: signal.Signals, message: str) -> None:
    with begun() as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (128 + number, message)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_ends_at_once_whatever_is_still_to_be_closed(second: signal.Signals) -> None:
    with begun(closing=30) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(second)
        _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (-second, "")


def test_a_signal_that_was_ignored_still_is() -> None:
    with begun(prefix=("nohup",)) as process:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


def test_ctrl_c_while_the_tasks_are_made_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "fabfile.py").write_text(
        "from playbooks import ns\nimport pathlib, time\n"
        f"pathlib.Path({str(begun)!r}).touch()\n"
        "try:\n    time.sleep(30)\nexcept BaseException:\n    time.sleep(30)\n"
    )
    assert interrupted(tmp_path, "status", begun=begun) == (130, "interrupted\n")


def test_ctrl_c_in_a_task_of_the_users_own_ends_alike_once_it_has_tidied_up(tmp_path: Path) -> None:
    (tmp_path / "fabfile.py").write_text(
        "import signal\nfrom invoke import task\nfrom playbooks import ns\n"
        "@task\ndef own(context):\n"
        "    try:\n        signal.raise_signal(signal.SIGINT)\n"
        "    finally:\n        print('tidied up')\n"
        "ns.add_task(own)\n"
    )
    ran = fab(tmp_path, "own")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "tidied up\n", "interrupted\n")
