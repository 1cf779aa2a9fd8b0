"""The ``fab`` program: Fabric's own, with what has to hold before Fabric is imported and after it has ended.

Ctrl-C ends it with 130 and one word from the start, output that cannot be written is an error in one line and
not a traceback, and so is a current folder that was removed.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import IO

from playbooks.cli import signals

__all__ = ["OutputFailed", "Program", "program"]

_STATUS_OF_SIGPIPE = 141


class OutputFailed(Exception):
    """Stdout cannot be written. No OSError: nobody who expects those of files and sockets shall take it."""

    def __init__(self, error: OSError) -> None:
        self.is_closed_pipe = error.errno == errno.EPIPE
        super().__init__(f"stdout cannot be written: {error.strerror}; what it lacks is lost")


class _Output(io.FileIO):
    """A standard stream that fails once, and from then on takes what it is given without a word.

    Python itself would try again at its end, and complain.
    """

    def __init__(self, number: int, *, raises: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._raises, self._failed = raises, False

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        if not self._failed:
            try:
                return super().write(data) or 0
            except BlockingIOError:
                raise
            except OSError as error:
                self._failed = True
                if self._raises:
                    raise OutputFailed(error) from None
        return len(data)


class Program:
    """What the ``fab`` script runs."""

    def run(self) -> None:
        """Run Fabric's program on this process's command line; ends in SystemExit, but for status 0.

        Exit statuses are those of :mod:`playbooks.cli.task`; 141 when whoever read stdout has gone.
        """
        signals.exit_on_interrupt()
        _open_streams()
        try:
            Path.cwd()
        except OSError as error:
            from launch.errors import InputError
            from playbooks.cli import output

            problem = f"is not there any more ({error.strerror})"
            output.error(InputError("current folder", os.environ.get("PWD"), problem, "cd to another one"))
            sys.exit(2)
        try:
            try:
                _fabric()
            finally:
                sys.stdout.flush()
                signals.exit_on_interrupt()  # what is left to do is Python's own end
        except OutputFailed as failure:
            if not failure.is_closed_pipe:
                from playbooks.cli import output

                output.error(failure)
            sys.exit(_STATUS_OF_SIGPIPE if failure.is_closed_pipe else 1)


program = Program()
"""Under the name that Fabric's has in the script of that name."""


def _fabric() -> None:
    from fabric.main import program as fabric

    execute = fabric.execute

    def begin_tasks() -> None:
        signals.raise_on_interrupt()
        execute()

    fabric.execute = begin_tasks
    fabric.run()


def _open_streams() -> None:
    """Open what is closed, so that no file or socket gets the number of a standard stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # writing to it fails, as it does to what is closed
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _stream(1, sys.stdout, raises=True)
    sys.stderr = _stream(2, sys.stderr, raises=False)


def _stream(number: int, given: IO[str] | None, *, raises: bool) -> io.TextIOWrapper:
    if given is not None:
        given.flush()
    raw: io.RawIOBase = _Output(number, raises=raises)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(given, "encoding", "utf-8"),
        errors=getattr(given, "errors", "backslashreplace"),
        line_buffering=number == 2 or os.isatty(number),  # noqa: PLR2004  (stderr)
    )
