"""Lines on stdout and stderr: notices of settings that do not carry over, each once per process."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO

from launch.printable import for_stream

__all__ = ["report", "write_line"]

_written: set[str] = set()


def report(notices: Iterable[str]) -> None:
    """Write the notices that this process has not written yet."""
    for notice in notices:
        if notice not in _written:
            _written.add(notice)
            write_line(f"notice: {notice}", sys.stderr)


def write_line(text: str, stream: IO[str]) -> None:
    """Write a line, made safe for a terminal, at once."""
    stream.write(for_stream(f"{text}\n", stream))
    stream.flush()
