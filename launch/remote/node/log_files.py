"""Files that a job's ranks leave on their node: output and exit statuses."""

from __future__ import annotations

import os
import time

__all__ = ["open_log", "write_exit", "write_log"]


def open_log(folder: str, name: str) -> int:
    """Open the log file of a rank or a setup line, for stdout and stderr in order of arrival."""
    return os.open(f"{folder}/logs/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def write_log(fd: int, data: bytes) -> tuple[int, str]:
    """Append to a log; return the number of bytes that could not be written, and why.

    A full disk loses these bytes alone.
    """
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        return len(data), error.strerror or str(error)
    return 0, ""


def write_exit(fd: int, rank: int, status: int, stopped: bool) -> None:
    """Write a rank's exit status to its node's record, as one JSON line."""
    flag = "true" if stopped else "false"
    line = f'{{"rank": {rank}, "status": {status}, "stopped": {flag}, "time": {time.time():.3f}}}\n'
    write_log(fd, line.encode())
