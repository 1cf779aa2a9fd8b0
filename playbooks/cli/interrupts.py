"""Ctrl-C while no task runs: nothing is begun then, or all is done, so the ``fab`` ends at once.

An exception would have to get out of whatever is just being imported, and Invoke would end with 1 and without
a word.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

__all__ = ["begin", "give_back", "heed"]


def heed() -> None:
    """Lets Ctrl-C end the ``fab`` that runs, if one does, until :func:`give_back`."""
    if "fabric.main" in sys.modules:
        begin()


def begin() -> None:
    """Let Ctrl-C end this process with 130 and one word, until :func:`give_back`; ignored, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Another thread than the main one may make the tasks, and may not do this.
        with suppress(ValueError):
            signal.signal(signal.SIGINT, _leave)
    # The script that tools/setup writes blocks it until here, since Python alone would end in a traceback.
    # What fab runs would have it blocked too.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def give_back() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)
