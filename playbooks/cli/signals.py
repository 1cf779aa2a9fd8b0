"""What signals do to a command: they end it at once while no task runs, and detach one that follows a job."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = [
    "attached",
    "exit_on_interrupt",
    "exit_on_interrupt_of_fab",
    "raise_on_interrupt",
    "report_half_done",
]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Interrupted(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


@contextmanager
def attached(on_signal: Callable[[int], str]) -> Iterator[None]:
    """While the block runs, let Ctrl-C, SIGTERM and SIGHUP end the command with 128+n, never the job.

    Call ``on_signal(n)`` when the signal comes, which may take its time, and print what it returns. A second
    signal ends the command at once. Signals that were ignored (nohup, a shell's background) stay ignored.
    """
    from invoke.exceptions import Exit

    from playbooks.cli import output

    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in handled}

    def interrupt(number: int, _frame: object) -> None:
        for one in handled:
            signal.signal(one, signal.SIG_DFL)
        raise _Interrupted(number)

    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    except _Interrupted as caught:
        with suppress(OSError):  # the terminal may be closed
            if caught.number == signal.SIGINT:
                output.progress("")  # the terminal shows ^C there
            output.progress(on_signal(caught.number))
        raise Exit(code=128 + caught.number) from None
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)


@contextmanager
def report_half_done(
    words: str, kinds: tuple[type[BaseException], ...] = (KeyboardInterrupt,)
) -> Iterator[None]:
    """Print ``words`` when Ctrl-C ends the block, or an exception of another of ``kinds``."""
    try:
        yield
    except kinds:
        from playbooks.cli import output

        output.progress(words)
        raise


def exit_on_interrupt() -> None:
    """Let Ctrl-C end this process with 130 and one word, until :func:`raise_on_interrupt`.

    For the time in which no task runs. Once Python has joined its threads nothing is left to end: Ctrl-C is
    ignored then, and the exit status is the command's. An exception would have to pass through whatever is
    being imported, and Invoke would end with 1 and without a word. An ignored Ctrl-C stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Another thread than the main one may make the tasks, and may not do this.
        with suppress(ValueError):
            signal.signal(signal.SIGINT, _exit)
            atexit.register(_ignore)
    # The script that tools/setup writes blocks it until here, since Python alone would end in a traceback.
    # What fab runs would have it blocked too.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def exit_on_interrupt_of_fab() -> None:
    """Do :func:`exit_on_interrupt` where this process is a ``fab``."""
    if "fabric.main" in sys.modules:
        exit_on_interrupt()


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(_number: int, _frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


def _ignore() -> None:
    # Python's shutdown would restore the default action, which kills without a word.
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
