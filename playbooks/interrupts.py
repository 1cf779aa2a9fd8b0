"""Ctrl-C before any task runs: nothing is begun then, so the ``fab`` ends at once.

An exception would have to get out of whatever is just being imported, and Invoke would end with 1 and without
a word.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["give_back", "heed"]


def heed() -> None:
    """Lets Ctrl-C end the ``fab`` that runs, if one does, until :func:`give_back`."""
    if "fabric.main" not in sys.modules or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    try:
        signal.signal(signal.SIGINT, _leave)
    except ValueError:
        return  # another thread than the main one makes the tasks


def give_back() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)
