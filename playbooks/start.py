"""The ``fab`` program: Fabric's own, with what must be set up before its import and done after its end.

Ctrl-C ends it with 130 and one word from the start; output that cannot be written, and a current folder that
was removed, are errors of one line instead of a traceback.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from playbooks.cli import signals

__all__ = ["OutputFailed", "Program", "__version__", "open_streams", "program", "sleep_while_read"]

__version__ = "0.1.0"
"""Ranklift's own."""

_STATUS_OF_SIGPIPE = 141
_NO_FABFILE = (
    "cd to Ranklift's folder, or to a repository whose fabfile.py imports playbooks; `fab init` writes one "
    "into a repository of your own"
)


class OutputFailed(Exception):
    """Stdout cannot be written. Not an OSError, so that no handler for files and sockets catches it."""

    def __init__(self, error: OSError) -> None:
        self.is_closed_pipe = error.errno == errno.EPIPE
        super().__init__(f"stdout cannot be written: {error.strerror}; the rest of the output is lost")


def sleep_while_read(seconds: float) -> None:
    """Sleep; raise :class:`OutputFailed` at once when the reader of stdout has gone.

    A write would raise it too, but the command may have nothing to write for a long time.
    """
    poll = select.poll()
    poll.register(1, 0)  # errors alone
    if poll.poll(seconds * 1000):
        raise OutputFailed(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))


class _Output(io.FileIO):
    """A standard stream that fails once, and discards everything from then on.

    Python itself writes again at its end, and would print an error.
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
    """The program that the ``fab`` script runs."""

    def run(self) -> None:
        """Run Fabric's program on this process's command line; raises SystemExit unless the status is 0.

        Exit statuses are those of :mod:`playbooks.cli.task`; 141 when the reader of stdout has gone.
        """
        signals.exit_on_interrupt()
        gc.disable()  # until the tasks begin: imports make nothing that could be collected
        open_streams()
        if _is_for_shell(sys.argv[1:]):
            return
        try:
            Path.cwd()
        except OSError as error:
            from launch.errors import InputError
            from playbooks.cli import output

            problem = f"does not exist any more ({error.strerror})"
            output.error(InputError("current folder", os.environ.get("PWD"), problem, "cd to another one"))
            sys.exit(2)
        try:
            try:
                _fabric()
            finally:
                sys.stdout.flush()
                signals.exit_on_interrupt()  # only Python's own shutdown follows
        except OutputFailed as failure:
            if not failure.is_closed_pipe:
                from playbooks.cli import output

                output.error(failure)
            sys.exit(_STATUS_OF_SIGPIPE if failure.is_closed_pipe else 1)


program = Program()
"""Named as Fabric's own, which the ``fab`` script imports."""


def _is_for_shell(words: Sequence[str]) -> bool:
    """Answer a shell that completes a command line or asks for its script; return whether that was done."""
    option, equals, shell = (words[0] if words else "").partition("=")
    if option not in ("--complete", "--print-completion-script"):
        return False
    from launch.errors import InputError
    from launch.project_folder import is_trusted
    from playbooks.cli import completion, output

    if option == "--print-completion-script":
        try:
            output.result(completion.script(shell if equals else "".join(words[1:2])))
        except InputError as error:
            output.error(error)
            sys.exit(2)
        return True
    fabfile = completion.fabfile_around(Path.cwd())
    if fabfile is not None and not is_trusted(fabfile):
        return True  # without an answer: it would run the program of another user
    table = None if fabfile is None else completion.load(fabfile)
    if table is not None:
        output.result("\n".join(completion.answers(table, words)))
    return fabfile is None or table is not None


def _fabric() -> None:
    from playbooks.cli.late_imports import imported_at_first_use

    with imported_at_first_use():
        from fabric.exceptions import NothingToDo
        from fabric.main import program as fabric
        from invoke.exceptions import Exit

    from launch.errors import InputError
    from playbooks.cli import output
    from playbooks.cli.invoke_patches import improve_program
    from playbooks.fabfile_loader import FabfileLoader

    fabric.loader_class = FabfileLoader
    execute, load = fabric.execute, fabric.load_collection

    def load_collection() -> None:
        try:
            load()
            if _asks_for_init(fabric) and "init" not in fabric.collection.task_names:
                _load_ours(fabric)
        except InputError as error:
            output.error(error)
            sys.exit(2)
        except Exit:
            from playbooks.cli import completion

            if _asks_for_init(fabric):
                _load_ours(fabric)
                return
            is_named = any(fabric.args[name].value for name in ("search-root", "collection"))
            if is_named or completion.fabfile_around(Path.cwd()) is not None:
                raise
            if fabric.core.unparsed == ["help"]:
                fabric.print_help()
                raise Exit from None
            problem = "has no fabfile.py, nor has a folder above it"
            output.error(InputError("current folder", str(Path.cwd()), problem, _NO_FABFILE))
            sys.exit(2)

    def begin_tasks() -> None:
        signals.raise_on_interrupt()
        gc.freeze()
        gc.enable()
        try:
            execute()
        except NothingToDo:  # without any task Fabric runs what follows -- on the hosts of its own -H
            line = fabric.core.remainder
            remedy = f"give it to exec: fab exec --nodes 0-3 -- {line}"
            output.error(InputError("--", line, "no task takes the words after it", remedy))
            sys.exit(2)

    fabric.execute, fabric.load_collection = begin_tasks, load_collection
    improve_program(fabric, __version__)
    fabric.run()


def _asks_for_init(fabric: Any) -> bool:
    words = [word for word in fabric.core.unparsed[:2] if word != "help"]
    return words[:1] == ["init"] or fabric.args.help.value == "init"


def _load_ours(fabric: Any) -> None:
    """Take our own tasks: the fabfile, which ``fab init`` writes or completes, has none of them yet."""
    fabric.collection = sys.modules[__package__].ns


def open_streams() -> None:
    """Open closed standard streams, so that no file or socket gets their numbers, and have all of them fail
    once at most: a terminal that was closed leaves the exit status as it is."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # writing to it fails, as to a closed stream
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
