"""A terminal that runs a command and keeps what it shows, as xterm would: its screens, cursor and modes.

It knows the control sequences that ``fab`` may write, and notes all others as unknown.
"""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["EmulatedTerminal", "Shown"]

_LEADER = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal the command's own: Ctrl-C, resizes and hang-ups reach it."""
_CONTROL = re.compile(r"\x1b\[(?P<private>\??)(?P<numbers>[0-9;]*)(?P<final>[@-~])")
_LIMIT_S = 30.0


class _Cell(str):
    """A letter with the numbers of its style: ``1``, ``32``; empty without one (ECMA-48, SGR)."""

    __slots__ = ("style",)
    style: str


class Shown:
    """What the bytes written so far make of a screen."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.unknown: list[str] = []
        self.in_alternate = self.cursor_hidden = False
        self.wraps = True
        self._main = self._empty()
        self._alternate = self._empty()
        self._row = self._column = 0
        self._saved = (0, 0)
        self._rest = self._style = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def text(self) -> list[str]:
        """The lines that are visible, without blanks at their ends."""
        return ["".join(line).rstrip() for line in self._cells()]

    @property
    def styled(self) -> list[list[tuple[str, str]]]:
        """The visible lines, each as texts with their styles."""
        return [
            [
                ("".join(cells), style)
                for style, cells in groupby(line, lambda cell: getattr(cell, "style", ""))
            ]
            for line in self._cells()
        ]

    def resize(self, columns: int, lines: int) -> None:
        """Cut both screens, or fill them with blanks."""
        self.columns, self.lines = columns, lines
        for cells in (self._main, self._alternate):
            cells[:] = [(line + [" "] * columns)[:columns] for line in (cells + self._empty())[:lines]]
        self._row, self._column = min(self._row, lines - 1), min(self._column, columns - 1)

    def feed(self, data: bytes) -> None:
        """Take what the command wrote."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._letter(text[at])
                at += 1
                continue
            found = _CONTROL.match(text, at)
            if found is None:
                if len(text) - at < 16:
                    self._rest = text[at:]
                    return
                self.unknown.append(repr(text[at : at + 4]))
                at += 1
                continue
            self._control(found)
            at = found.end()

    def _empty(self) -> list[list[str]]:
        return [[" "] * self.columns for _ in range(self.lines)]

    def _cells(self) -> list[list[str]]:
        return self._alternate if self.in_alternate else self._main

    def _letter(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
        elif letter == "\n":
            self._row += 1
            if self._row == self.lines:
                self._row -= 1
                cells = self._cells()
                cells[:] = [*cells[1:], [" "] * self.columns]
        elif letter == "\b":
            self._column = max(0, self._column - 1)
        elif letter == "\a":
            pass
        elif ord(letter) < 0x20:
            self.unknown.append(repr(letter))
        else:
            if self._column == self.columns:
                if not self.wraps:
                    self._column -= 1
                else:
                    self._letter("\r")
                    self._letter("\n")
            cell = _Cell(letter)
            cell.style = self._style
            self._cells()[self._row][self._column] = cell
            self._column += 1

    def _control(self, found: re.Match[str]) -> None:
        numbers = [int(number or 0) for number in found["numbers"].split(";")]
        match (found["private"], found["final"]):
            case ("", "H"):
                row, column = [*numbers, 1][:2]
                self._row, self._column = max(1, row) - 1, max(1, column) - 1
                assert self._row < self.lines, f"line {row} of {self.lines}"
            case ("", "J") if numbers == [2]:
                self._cells()[:] = self._empty()
            case ("", "K") if numbers == [0]:
                cells = self._cells()[self._row]
                cells[self._column :] = [" "] * (self.columns - self._column)
            case ("", "m"):
                self._style = found["numbers"].lstrip("0")
            case ("?", "h" | "l") if numbers in ([1049], [25], [7], [2004]):
                is_set = found["final"] == "h"
                if numbers == [1049]:
                    if is_set and not self.in_alternate:
                        self._saved = (self._row, self._column)
                    elif not is_set:
                        self._row, self._column = self._saved
                    self.in_alternate = is_set
                elif numbers == [25]:
                    self.cursor_hidden = not is_set
                elif numbers == [7]:
                    self.wraps = is_set
            case _:
                self.unknown.append(repr(found[0]))


class EmulatedTerminal:
    """Runs a command on a terminal of its own while the context is open."""

    def __init__(
        self,
        argv: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self.shown = Shown(columns, lines)
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (lines, columns))
        self.mode = termios.tcgetattr(self._theirs)
        """The terminal's settings before the command."""
        kept = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEADER, *argv],
            cwd=folder,
            env={**kept, "TERM": "xterm-256color"},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
        )

    def __enter__(self) -> EmulatedTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(_LIMIT_S)
        for fd in {self._ours, self._theirs} - {-1}:
            os.close(fd)

    @property
    def text(self) -> str:
        return "\n".join(self.shown.text)

    @property
    def settings(self) -> list[Any]:
        """The terminal's settings now."""
        return termios.tcgetattr(self._theirs)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, of which the kernel informs the command by SIGWINCH."""
        self.shown.resize(columns, lines)
        termios.tcsetwinsize(self._theirs, (lines, columns))

    def hang_up(self) -> None:
        """Close the terminal as a window that is closed."""
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def read(self, seconds: float) -> None:
        """Take what the command writes within so many seconds."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._ours], [], [], left)[0]:
                self.shown.feed(os.read(self._ours, 65536))

    def wait_for(self, holds: Callable[[str], Any] | str, limit_s: float = _LIMIT_S) -> str:
        """Wait until the screen has a text, or ``holds``; return the screen."""
        deadline = time.monotonic() + limit_s
        has_it = (lambda text: holds in text) if isinstance(holds, str) else holds
        while not has_it(self.text):
            assert time.monotonic() < deadline, f"not within {limit_s:g} s: {holds}\n{self.text}"
            self.read(0.05)
        return self.text

    def wait(self, limit_s: float = _LIMIT_S) -> int:
        """Wait for the command's end, taking what it writes; return its status."""
        deadline = time.monotonic() + limit_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"runs on\n{self.text}"
            if self._ours >= 0:
                self.read(0.05)
            else:
                time.sleep(0.05)
        if self._ours >= 0:
            self.read(0.1)
        return self.process.returncode
