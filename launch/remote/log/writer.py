"""The writer of the stream, the ranks' merged output on the head, for the supervisor."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from launch.remote.base import frames
from launch.remote.base.frames import NOTICE, RECORD
from launch.remote.base.messages import not_going_on, not_kept, of_a_rank
from launch.remote.base.payloads import Note
from launch.remote.base.rate_limit import LastBytes
from launch.remote.log import segments

__all__ = ["LAUNCHER", "StreamWriter", "last_lines"]

LAUNCHER = -1
"""Rank number of output of mpirun, of ssh or of a runner itself."""

_SEGMENT = 64 * 1024 * 1024
_KEPT = 8
_RESERVE = "stream.reserve"
_RESERVED = 256 * 1024
"""Bytes released on a full disk, for a half-written record and the reason why the stream breaks off."""


def last_lines(data: bytes, count: int = 10) -> list[str]:
    r"""Return the last ``count`` lines that are not empty.

    Line feeds and carriage returns end a line; Unicode's other line ends are part of the line.

    >>> last_lines(b"one\n\ntwo\xe2\x80\xa8more\n", 1)
    ['two\u2028more']
    """
    lines = [line for line in data.splitlines() if line.strip()]
    return [line.decode("utf-8", "replace") for line in lines[-count:]]


class StreamWriter:
    """Writer of records to the stream in a job's folder; keeps each rank's last bytes. What a full disk
    cannot take is counted, and reported in the stream once there is room."""

    def __init__(self, folder: str, segment: int = _SEGMENT, kept: int = _KEPT) -> None:
        self._folder, self._limit, self._kept = folder, segment, kept
        self._fd = -1
        self._number = self._size = 0
        self._bytes = self._lines = 0
        self._unwritten = b""
        """Rest of a record whose beginning is in the file."""
        self._lost_bytes = self._lost_lines = 0
        self._why = ""
        self._tails: dict[tuple[int, int], LastBytes] = {}
        self._is_reserved = False
        self._reserve()

    def tail(self, rank: int, node: int) -> bytes:
        """Return the last bytes that a rank, or the launcher, has written on a node."""
        last = self._tails.get((rank, node))
        return b"" if last is None else last.data

    @property
    def tails(self) -> dict[tuple[int, int], bytes]:
        """Last bytes by rank and node, of every rank that has written any."""
        return {key: last.data for key, last in self._tails.items()}

    def forget_tails(self) -> None:
        """Forget all last bytes, because a restarted job's ranks print their own."""
        self._tails.clear()

    def write(self, rank: int, node: int, stream: int, data: bytes) -> None:
        """Write one record, with the head's time because nodes' clocks differ."""
        if stream != NOTICE:
            last = self._tails.get((rank, node))
            if last is None:
                last = self._tails[rank, node] = LastBytes()
            last.add(stream, data)
        if self._lost_bytes:
            self._report_lost()
        if not self._append(rank, node, stream, data):
            if not self._lost_bytes:
                self._break_off()
            self._lost_bytes += len(data)
            self._lost_lines += data.count(b"\n")

    def on_frame(self, kind: bytes, payload: bytes, node: int, name: str) -> bool:
        """Handle a runner's frame if it concerns output of node ``name``; return whether it does."""
        if kind == frames.NOTE:
            fields: Note = frames.unpack(payload)
            self.write(fields["rank"], node, NOTICE, of_a_rank(fields, name).encode())
        elif kind == frames.TAIL:
            rank, _ = frames.OUTPUT.unpack_from(payload)
            self._tails[rank, node] = LastBytes(payload[frames.OUTPUT.size :])
        elif kind == frames.OUT:
            rank, stream = frames.OUTPUT.unpack_from(payload)
            self.write(rank, node, stream, payload[frames.OUTPUT.size :])
        else:
            return False
        return True

    def close(self) -> None:
        """Report what was left out, and close the file."""
        if self._lost_bytes:
            self._report_lost()
        if self._fd >= 0:
            self._put(self._unwritten)
            os.close(self._fd)
            self._fd = -1
        self._give_up_the_reserve()

    def _break_off(self) -> None:
        if self._give_up_the_reserve():
            self._append(LAUNCHER, 0, NOTICE, not_going_on(self._why).encode())

    def _report_lost(self) -> None:
        words = not_kept(self._lost_bytes, self._lost_lines, self._why)
        if self._append(LAUNCHER, 0, NOTICE, words.encode()):
            self._lost_bytes = self._lost_lines = 0
            self._reserve()

    def _reserve(self) -> None:
        try:
            with open(f"{self._folder}/{_RESERVE}", "wb", buffering=0) as file:
                self._is_reserved = file.write(bytes(_RESERVED)) == _RESERVED
        except OSError:
            self._is_reserved = False

    def _give_up_the_reserve(self) -> bool:
        """Remove the reserved file; return whether it existed."""
        was_reserved, self._is_reserved = self._is_reserved, False
        if was_reserved:
            with suppress(FileNotFoundError):  # the job's folder was removed
                os.unlink(f"{self._folder}/{_RESERVE}")
        return was_reserved

    def _append(self, rank: int, node: int, stream: int, data: bytes) -> bool:
        """Append a record; return whether its beginning was written. The next call writes the rest first."""
        self._unwritten = self._put(self._unwritten)
        if self._unwritten:
            return False
        if self._fd < 0 or self._size >= self._limit:
            self._go_on_in_the_next()
        record = RECORD.pack(time.time(), rank, node, stream, len(data)) + data
        rest = self._put(record)
        if len(rest) == len(record):
            return False
        self._unwritten = rest
        self._size += len(record)
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        return True

    def _put(self, data: bytes) -> bytes:
        """Write to the segment, if one is open; return what could not be written."""
        try:
            while data and self._fd >= 0:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self._why = error.strerror or self._why
        return data

    def _go_on_in_the_next(self) -> None:
        """Begin the next segment; continue the present one when that fails."""
        try:
            fd, size = segments.begin(self._folder, self._number + 1, self._bytes, self._lines)
        except OSError as error:
            self._why = error.strerror or self._why
            return
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, size
        self._number += 1
        for number in segments.numbers(self._folder)[: -self._kept]:
            os.unlink(segments.path(self._folder, number))
