"""The whole terminal as one screen: entered, drawn line by line, and left as it was whatever happens.

While it is drawn nothing else writes to stdout; :func:`playbooks.cli.styled.sgr_text` makes texts safe.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from launch.errors import InputError
from playbooks.cli.styled import Line, sgr_text

__all__ = ["FullScreen", "full_screen"]

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""DEC private modes of xterm's control sequences: alternate screen with saved cursor, cursor, wrapping."""
_LEAVE_S = 1.0
"""Limit for a terminal that takes nothing, such as one of a stopped ssh, to take the end of the screen."""
_LEAST_COLUMNS, _LEAST_LINES = 20, 5
_CHUNK = 4096


class FullScreen:
    """The terminal while it shows one screen."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._shown: list[str] | None = None
        """The lines that are on the screen; None where that is unknown."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal now."""
        try:
            columns, lines = os.get_terminal_size(1)
        except OSError:
            columns, lines = 0, 0
        return max(_LEAST_COLUMNS, columns or 80), max(_LEAST_LINES, lines or 24)

    def forget(self) -> None:
        """Have the next :meth:`draw` write every line: something else has changed the screen."""
        self._shown = None

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines; only those that changed are written."""
        made = [sgr_text(line, colours=self._colours) for line in lines]
        before = self._shown
        parts = ["\x1b[H\x1b[2J"] if before is None or len(before) != len(made) else []
        known = [""] * len(made) if before is None or len(before) != len(made) else before
        for number, (line, was) in enumerate(zip(made, known, strict=True), start=1):
            if line != was:
                parts.append(f"\x1b[{number};1H{line}\x1b[K")
        self._shown = made
        if parts:
            _write("".join(parts))

    def enter(self) -> None:
        """Take the terminal: its keys come one by one, its lines are drawn."""
        mode = termios.tcgetattr(0)
        mode[0] &= ~termios.IXON  # Ctrl-S would stop the screen, and the program with it
        mode[3] &= ~(termios.ECHO | termios.ICANON)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(0, termios.TCSANOW, mode)
        self.forget()
        _write(_ENTER)

    def leave(self, mode: list[object]) -> None:
        """Give the terminal back in ``mode``, as far as it still takes anything."""
        with suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSANOW, mode)  # type: ignore[arg-type]
        ready = select.poll()
        ready.register(1, select.POLLOUT)
        with suppress(OSError):
            if ready.poll(_LEAVE_S * 1000):
                os.write(1, _LEAVE.encode())


def _write(text: str) -> None:
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        try:
            data = data[os.write(1, data[:_CHUNK]) :]
        except BlockingIOError:  # whoever shares the terminal made it non-blocking
            select.select([], [1], [], 1.0)


@contextmanager
def full_screen(on_change: Callable[[], object]) -> Iterator[FullScreen]:
    """Show a screen of its own on the terminal while the block runs; restore the terminal at its end.

    Calls ``on_change`` from a signal handler after a resize, and when a stopped process goes on. Ctrl-Z
    restores the terminal before the process stops. Exceptions of other signals' handlers end the block.
    Raises :class:`~launch.errors.InputError` for a terminal without control sequences.
    """
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        problem = "has no full screens"
        raise InputError("TERM", os.environ.get("TERM", ""), problem, "use --once")
    sys.stdout.flush()
    screen = FullScreen(colours=not os.environ.get("NO_COLOR"))
    mode: list[object] = [*termios.tcgetattr(0)]

    def resized(_number: int, _frame: object) -> None:
        screen.forget()
        on_change()

    def stop(number: int, _frame: object) -> None:
        screen.leave(mode)
        signal.signal(number, signal.SIG_DFL)
        os.kill(
            os.getpid(), number
        )  # returns once the process is continued; at once where no shell could do that
        signal.signal(number, stop)
        go_on()

    def go_on(_number: int = 0, _frame: object = None) -> None:
        with suppress(OSError, termios.error):  # a hang-up comes as SIGHUP and SIGCONT
            screen.enter()
        on_change()

    handlers = {signal.SIGWINCH: resized, signal.SIGTSTP: stop, signal.SIGCONT: go_on}
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        screen.enter()
        yield screen
    except OSError as error:
        if error.errno == errno.EIO:  # the terminal is gone, and SIGHUP may be ignored
            raise SystemExit(128 + signal.SIGHUP) from None
        raise
    finally:
        for number, was in before.items():
            signal.signal(number, was)
        screen.leave(mode)
