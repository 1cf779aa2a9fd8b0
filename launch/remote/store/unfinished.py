"""Names of folders in which a process makes a snapshot: of a killed process, the next push removes them."""

from __future__ import annotations

import os

from launch.remote.base.processes import identity

__all__ = ["is_abandoned", "prefix"]

_NEW = ".new-"


def prefix(snapshot: str) -> str:
    """Return the beginning of the name of a folder in which this process makes a snapshot."""
    process = identity(os.getpid())
    return f"{_NEW}{snapshot}-{process['pid']}.{process['started']}-"


def is_abandoned(name: str, is_old: bool) -> bool:
    """Return whether the folder is an unfinished snapshot whose process is gone; if unknown, ``is_old``.

    >>> is_abandoned(prefix("0123456789abcdef") + "x1", True), is_abandoned(".new-0123-7.0-x1", False)
    (False, True)
    >>> is_abandoned(".new-0123-²", True), is_abandoned(".new-0123-7.²-x1", True)
    (True, True)
    >>> is_abandoned(".new-0123-x1", True), is_abandoned("0123456789abcdef", True)
    (True, False)
    """
    if not name.startswith(_NEW):
        return False
    pid, _, started = name.split("-")[2].partition(".") if name.count("-") > 1 else ("", "", "")
    if not (pid.isdecimal() and started.isdecimal()):
        return is_old
    try:
        return identity(int(pid))["started"] != int(started)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
