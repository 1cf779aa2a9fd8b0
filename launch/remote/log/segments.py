"""Segments, the files of the stream: ``stream.000001.log`` and so on, of which the newest are kept.

Each segment begins with a record of the amount before it, so that a reader that misses earlier segments can
report how much is missing.
"""

from __future__ import annotations

import os
import re
import struct
import time

from launch.remote.base.files import write_all
from launch.remote.base.frames import RECORD

__all__ = ["BEFORE", "START", "begin", "numbers", "path"]

_NAME = re.compile(r"stream\.[0-9]{6,18}\.log")
START = 0
"""Stream number of the record at a segment's beginning, whose data is :data:`BEFORE`."""
BEFORE = struct.Struct("!QQ")
"""Bytes and lines that all segments before this one held."""


def path(folder: str, number: int) -> str:
    """Return the path of a segment in a job's folder."""
    return f"{folder}/stream.{number:06}.log"


def numbers(folder: str) -> list[int]:
    """Return the numbers of the segments in a job's folder, oldest first."""
    names = [name[len("stream.") : -len(".log")] for name in os.listdir(folder) if _NAME.fullmatch(name)]
    return sorted(map(int, names))


def begin(folder: str, number: int, count: int, lines: int) -> tuple[int, int]:
    """Make a segment after ``count`` bytes and ``lines``, named once readers find its first record; return a
    descriptor to write to, and the size. Raise OSError."""
    start = RECORD.pack(time.time(), -1, 0, START, BEFORE.size) + BEFORE.pack(count, lines)
    unfinished = path(folder, number) + ".new"
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, start)
        os.rename(unfinished, path(folder, number))
    except OSError:
        os.close(fd)
        raise
    return fd, len(start)
