"""stream.log: the ranks' merged output on the head, written by the supervisor and read by followers."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from launch.remote.protocol import RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LAUNCHER", "StreamReader", "StreamWriter", "last_lines"]

LAUNCHER = -1
"""The rank of what mpirun, ssh or a runner itself says."""

_TAIL = 4096
"""Bytes of each rank's output that are kept at hand for its last lines."""


def last_lines(data: bytes, count: int = 10) -> list[str]:
    """The last ``count`` lines that are not empty.

    >>> last_lines(b"one\\n\\ntwo\\n", 1)
    ['two']
    """
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-count:]


class StreamWriter:
    """Appends records, and remembers each rank's last bytes."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  open as long as the job runs
        self.tails: dict[tuple[int, int], bytes] = {}

    def write(self, rank: int, node: int, stream: int, data: bytes) -> None:
        """One record, stamped with the head's clock: nodes' clocks differ."""
        self._file.write(RECORD.pack(time.time(), rank, node, stream, len(data)) + data)
        key = (rank, node)
        self.tails[key] = (self.tails.get(key, b"") + data)[-_TAIL:]


class StreamReader:
    """Reads records as they come; a half-written last one is left for the next time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self._buffer = bytearray()

    def read(self) -> Iterator[tuple[bytes, int]]:
        """Every new whole record, header included, with its header's length."""
        while True:
            if self._fd is None:
                try:
                    self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    return
            data = os.read(self._fd, 1 << 20)
            if not data:
                return
            self._buffer += data
            start = 0
            while len(self._buffer) - start >= RECORD.size:
                end = start + RECORD.size + RECORD.unpack_from(self._buffer, start)[4]
                if len(self._buffer) < end:
                    break
                yield bytes(self._buffer[start:end]), RECORD.size
                start = end
            del self._buffer[:start]
