"""The program waits for what its command does first, and changes nothing when that fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.gate import KEY, Gate, pass_gate
from launch.errors import GiveUpError, RetryError
from tests.infra.programs import ROOT


class Program:
    """The program at the gate, while the command's side is played by the test."""

    def __init__(self, gate: Gate) -> None:
        self.error: Exception | None = None
        self.has_passed = False
        self._thread = threading.Thread(target=self._run, args=(gate,), daemon=True)
        self._thread.start()

    def _run(self, gate: Gate) -> None:
        try:
            pass_gate({KEY: str(gate.folder)})
        except GiveUpError as error:
            self.error = error
        else:
            self.has_passed = True

    def end(self, attend: Callable[[], None] = lambda: None) -> None:
        deadline = time.monotonic() + 20
        while self._thread.is_alive():
            assert time.monotonic() < deadline, "it waits for ever"
            attend()
            time.sleep(0.01)


def test_without_a_gate_nobody_is_waited_for() -> None:
    pass_gate({})


def test_the_work_is_done_once_and_only_when_the_program_has_come(tmp_path: Path) -> None:
    done: list[str] = []
    gate = Gate(tmp_path / "gate", lambda: done.append("removed"))
    with gate.kept():
        gate.attend()
        assert done == []
        program = Program(gate)
        program.end(gate.attend)
        gate.attend()
    assert program.has_passed
    assert done == ["removed"]
    assert gate.error is None


@pytest.mark.parametrize("error", [RetryError("node000003 has train-1"), KeyboardInterrupt()])
def test_where_the_work_fails_the_program_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    def work() -> None:
        raise error

    gate = Gate(tmp_path / "gate", work)
    with gate.kept():
        program = Program(gate)
        program.end(gate.attend)
    assert gate.error is error
    assert not program.has_passed
    assert str(program.error) == f"nothing was updated: {error or 'interrupted'}"


def test_after_a_refusal_no_work_is_done_whenever_the_program_comes(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", lambda: pytest.fail("nodes were removed"))
    with gate.kept():
        gate.refuse("interrupted")
        program = Program(gate)
        program.end(gate.attend)
    assert str(program.error) == "nothing was updated: interrupted"


def test_a_refusal_after_the_work_is_too_late(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", lambda: None)
    with gate.kept():
        program = Program(gate)
        program.end(gate.attend)
        gate.refuse("interrupted")
    assert program.has_passed


def test_a_program_whose_command_was_killed_changes_nothing(tmp_path: Path) -> None:
    keeper = (
        "import sys, time; from pathlib import Path; from infra.gate import Gate\n"
        "with Gate(Path(sys.argv[1]), print).kept():\n    print('kept', flush=True); time.sleep(60)"
    )
    gate = Gate(tmp_path / "gate", lambda: None)
    with subprocess.Popen(
        [sys.executable, "-c", keeper, str(gate.folder)], stdout=subprocess.PIPE
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"kept\n"
        program = Program(gate)
        time.sleep(0.2)
        assert program.error is None
        command.kill()
    program.end()
    assert str(program.error) == "nothing was updated: the command that started this update was killed"


def test_a_gate_that_is_not_there_is_no_open_one(tmp_path: Path) -> None:
    with pytest.raises(GiveUpError, match=f"{KEY} = .*gone: No such file"):
        pass_gate({KEY: str(tmp_path / "gone")})


def test_a_program_that_is_interrupted_ends_without_a_word(tmp_path: Path) -> None:
    settings = {
        "vmSize": "Standard_ND40rs_v2",
        "nodeCount": 2,
        "location": "eastus",
        "sshFrom": "127.0.0.1/32",
    }
    program = "import runpy; runpy.run_path('infra', run_name='__main__')"
    gate = Gate(tmp_path / "gate", lambda: None)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RANKLIFT_")},
        "PULUMI_CONFIG": json.dumps({f"ranklift:{key}": value for key, value in settings.items()}),
        KEY: str(gate.folder),
    }
    with (
        gate.kept(),
        subprocess.Popen(
            [sys.executable, "-c", program], env=environment, cwd=ROOT, stderr=subprocess.PIPE
        ) as running,
    ):
        deadline = time.monotonic() + 60
        while not (gate.folder / "came").exists():
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline, "it does not come"
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, output = running.communicate(timeout=20)
    assert (running.returncode, output) == (130, b"")
