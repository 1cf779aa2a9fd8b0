"""What signals mean to a command that only watches: they end the command, never the job."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from invoke.exceptions import Exit

from playbooks.cli import output

__all__ = ["attached"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Interrupted(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


@contextmanager
def attached(parting: Callable[[int], str]) -> Iterator[None]:
    """Inside, Ctrl-C, SIGTERM and SIGHUP end the command with 128+n, after ``parting(n)`` is said.

    It is called when the signal comes and may take its time. A second signal ends the command at once,
    whatever it is doing. Signals that were being ignored (nohup, a shell's background) still are.
    """
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
        with suppress(OSError):  # a terminal that was closed takes no words
            if caught.number == signal.SIGINT:
                output.progress("")  # the terminal shows ^C there
            output.progress(parting(caught.number))
        raise Exit(code=128 + caught.number) from None
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)
