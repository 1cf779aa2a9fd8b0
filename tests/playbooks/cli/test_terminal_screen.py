"""A full screen leaves the terminal as it was, whatever ends or stops the program."""

from __future__ import annotations

import os
import signal
import sys
import termios
from pathlib import Path

import pytest

from tests.playbooks.emulated_terminal import EmulatedTerminal
from tests.playbooks.typed import ROOT

PROGRAM = [sys.executable, str(Path(__file__).with_name("drawing_program.py"))]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def started(folder: Path, *, argv: list[str] = PROGRAM, **environment: str) -> EmulatedTerminal:
    return EmulatedTerminal(argv, folder, {**ENVIRONMENT, **environment})


def is_restored(terminal: EmulatedTerminal) -> bool:
    shown = terminal.shown
    assert shown.unknown == []
    modes = (shown.in_alternate, shown.cursor_hidden, shown.wraps)
    return modes == (False, False, True) and terminal.settings == terminal.mode


def test_a_screen_takes_keys_one_by_one_and_gives_the_terminal_back(tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        terminal.wait_for("80 x 24")
        assert (terminal.shown.in_alternate, terminal.shown.cursor_hidden) == (True, True)
        assert not terminal.settings[3] & (termios.ECHO | termios.ICANON)
        terminal.type("ab")
        terminal.wait_for("typed ab")
        terminal.type("q")
        assert terminal.wait() == 0
        assert is_restored(terminal)
        assert terminal.text.strip() == ""


def test_it_is_drawn_again_in_every_size(tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        for columns, lines in ((80, 24), (40, 10), (200, 50), (1, 1)):
            terminal.resize(columns, lines)
            least = (max(20, columns), max(5, lines))
            if columns > 20:
                terminal.wait_for(f"{least[0]} x {least[1]}")
        terminal.resize(80, 24)
        terminal.wait_for("80 x 24")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_with_the_terminal_restored(number: int, tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        terminal.wait_for("80 x 24")
        os.kill(terminal.process.pid, number)
        assert terminal.wait() == 128 + number
        assert is_restored(terminal)
        assert f"ended by signal {number}" in terminal.text


def test_ctrl_c_is_a_signal(tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        terminal.wait_for("80 x 24")
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert is_restored(terminal)


def test_an_exception_restores_the_terminal_before_it_is_printed(tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        terminal.wait_for("80 x 24")
        terminal.type("x")
        assert terminal.wait() == 1
        assert is_restored(terminal)
        assert "RuntimeError: raised inside" in terminal.text


def test_a_terminal_that_is_closed_ends_it(tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        terminal.wait_for("80 x 24")
        terminal.hang_up()
        assert terminal.wait() == 128 + signal.SIGHUP


def test_ctrl_s_does_not_stop_the_screen(tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        terminal.wait_for("80 x 24")
        terminal.type("\x13ab")
        terminal.wait_for("ab")
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
        assert is_restored(terminal)


def test_ctrl_z_gives_the_terminal_to_the_shell_until_it_is_continued(tmp_path: Path) -> None:
    with started(tmp_path, argv=["bash", "--norc", "--noprofile", "-i"], PS1="$ ") as terminal:
        terminal.wait_for("$")
        before = terminal.settings
        terminal.type(f"{' '.join(PROGRAM)}\n")
        terminal.wait_for("80 x 24")
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        assert (terminal.shown.in_alternate, terminal.shown.cursor_hidden) == (False, False)
        assert terminal.settings == before
        terminal.resize(100, 30)
        terminal.type("fg\n")
        terminal.wait_for("100 x 30")
        terminal.type("z")
        terminal.wait_for("typed z")
        terminal.type("q")
        terminal.wait_for("fg")
        terminal.type("exit 3\n")
        assert terminal.wait() == 3


def test_it_draws_again_after_it_was_stopped_without_notice(tmp_path: Path) -> None:
    with started(tmp_path) as terminal:
        terminal.wait_for("80 x 24")
        os.kill(terminal.process.pid, signal.SIGSTOP)
        terminal.shown.feed(b"\x1b[?1049l\x1b[?25h")  # what a shell may do meanwhile
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.wait_for("80 x 24")
        assert (terminal.shown.in_alternate, terminal.shown.cursor_hidden) == (True, True)


def test_a_terminal_without_screens_is_refused(tmp_path: Path) -> None:
    with started(tmp_path, argv=["env", "TERM=dumb", *PROGRAM]) as terminal:
        assert terminal.wait() == 1
        assert "TERM = 'dumb': has no full screens; use --once" in terminal.text
        assert is_restored(terminal)
