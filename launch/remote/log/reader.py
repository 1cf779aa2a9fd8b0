"""The reader of the stream: from segment to segment, nothing lost and nothing twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Tuple  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base.frames import NOTICE, RECORD
from launch.remote.base.messages import passed_by
from launch.remote.log import segments
from launch.remote.log.writer import LAUNCHER

__all__ = ["StreamReader"]

Header = Tuple[float, int, int, int, int]  # noqa: UP006  (evaluated)

_CHUNK = 1 << 20


class StreamReader:
    """Reader of whole records; a half-written last record is left for the next read.

    Reading begins with the oldest segment, or with segment ``first``. A notice of the launcher's replaces
    segments that were removed before they were read.
    """

    def __init__(self, folder: str, first: int = 0) -> None:
        self._folder = folder
        self._number = first - 1 if first else 0
        self._passes_over_the_past = bool(first)
        self._fd = -1
        self._offset = 0
        self._buffer = bytearray()
        self._bytes = self._lines = 0

    @property
    def end(self) -> tuple[int, int]:
        """Number and size of the newest segment, for :meth:`read`."""
        for number in reversed(segments.numbers(self._folder)):
            return number, os.stat(segments.path(self._folder, number)).st_size
        return 0, 0

    def read(self, until: tuple[int, int] | None = None) -> Iterator[tuple[Header, bytes]]:
        """Yield header and whole bytes of every new record; stop at ``until``, an earlier value of
        :attr:`end`."""
        while until is None or self._number <= until[0]:
            # list first: a segment is complete once the next one exists
            there = segments.numbers(self._folder)
            is_last = until is not None and self._number == until[0]
            if self._fd >= 0:
                yield from self._records(until[1] if until is not None and is_last else None)
            if is_last or not self._go_on([number for number in there if number > self._number]):
                return

    def close(self) -> None:
        """Close the segment's file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _go_on(self, later: list[int]) -> bool:
        """Open the first of the later segments that still exists; return whether one does."""
        for number in later:
            try:
                fd = os.open(segments.path(self._folder, number), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            self.close()
            self._fd, self._number, self._offset = fd, number, 0
            self._buffer.clear()
            return True
        return False

    def _records(self, limit: int | None) -> Iterator[tuple[Header, bytes]]:
        while True:
            size = _CHUNK if limit is None else min(_CHUNK, limit - self._offset)
            data = os.read(self._fd, size) if size > 0 else b""
            if not data:
                return
            self._offset += len(data)
            buffer = self._buffer
            buffer += data
            start = 0
            while len(buffer) - start >= RECORD.size:
                header: Header = RECORD.unpack_from(buffer, start)
                end = start + RECORD.size + header[4]
                if len(buffer) < end:
                    break
                record = bytes(buffer[start:end])
                start = end
                if header[3] == segments.START:
                    yield from self._missed(header[0], *segments.BEFORE.unpack_from(record, RECORD.size))
                else:
                    self._bytes += header[4]
                    self._lines += record.count(b"\n", RECORD.size)
                    yield header, record
            del buffer[:start]

    def _missed(self, stamp: float, count: int, lines: int) -> Iterator[tuple[Header, bytes]]:
        missing, their_lines = count - self._bytes, lines - self._lines
        self._bytes, self._lines = count, lines
        if missing and not self._passes_over_the_past:
            text = passed_by(missing, their_lines).encode()
            header = (stamp, LAUNCHER, 0, NOTICE, len(text))
            yield header, RECORD.pack(*header) + text
        self._passes_over_the_past = False
