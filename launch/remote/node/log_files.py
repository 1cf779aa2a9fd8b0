"""What a job's ranks leave on their node: their output and how they ended."""

from __future__ import annotations

import os
import time

__all__ = ["open_log", "write_exit", "write_log"]


def open_log(folder: str, name: str) -> int:
    """Open the log file of a rank or of a setup line: stdout and stderr in the order they came."""
    return os.open(f"{folder}/logs/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def write_log(fd: int, data: bytes) -> tuple[int, str]:
    """Append to a log; return how many bytes could not be written, and why. A full disk loses those alone."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        return len(data), error.strerror or str(error)
    return 0, ""


def write_exit(fd: int, rank: int, status: int, stopped: bool) -> None:
    """Record a rank's exit status on its node, in one JSON line."""
    flag = "true" if stopped else "false"
    line = f'{{"rank": {rank}, "status": {status}, "stopped": {flag}, "time": {time.time():.3f}}}\n'
    write_log(fd, line.encode())
