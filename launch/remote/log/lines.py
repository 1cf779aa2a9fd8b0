"""The assembly of lines from pieces of output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Tuple  # noqa: UP035  (nodes may run Python 3.8)

__all__ = ["Line", "Lines"]

Key = Tuple[int, int, int]  # noqa: UP006  (evaluated)

_LONGEST = 2 << 20
"""Bytes at which an unfinished line counts as a line, because memory is limited. The stream has no such line,
see :mod:`launch.remote.base.rate_limit`."""
_ALL = 64 << 20
"""The same for all unfinished lines together, each with :data:`_ENTRY`: the number of sources is a claim of
the head."""
_ENTRY = 256
"""Bytes that a source takes beside its text, about."""


class Line:
    """One line: time of its first byte, source (rank, node and stream), bytes without the line end."""

    __slots__ = ("data", "key", "overwritten", "time")

    def __init__(self, time: float, key: Key, data: bytes, overwritten: bool = False) -> None:
        self.time, self.key, self.data = time, key, data
        self.overwritten = overwritten
        """Whether the line ended with a carriage return alone, as the states of a progress bar do."""


class Lines:
    """Lines in assembly, by rank, node and stream."""

    def __init__(self) -> None:
        self._begun: dict[Key, tuple[float, bytearray]] = {}
        self._held = 0

    def feed(self, time: float, key: Key, data: bytes) -> Iterator[Line]:
        r"""Yield the lines that this piece of output completes.

        >>> lines = Lines()
        >>> [line.data for line in lines.feed(0.0, (0, 0, 1), b"one\ntw")]
        [b'one']
        >>> [(line.data, line.overwritten) for line in lines.feed(0.0, (0, 0, 1), b"o\r\n10%\r20%\r")]
        [(b'two', False), (b'10%', True)]
        """
        if b"\n" not in data and b"\r" not in data and self._extend(key, data):
            if len(self._begun[key][1]) >= _LONGEST or self._held > _ALL:
                yield from self.end(key)
            return
        begun, text = self._take(key) or (time, b"")
        text = text + data if text else data
        if b"\r" in text:
            yield from self._with_returns(begun, time, key, text)
            return
        *whole, rest = text.split(b"\n")
        for line in whole:
            yield Line(begun, key, line)
            begun = time
        if rest:
            yield from self._keep(begun, key, rest)

    def _with_returns(self, begun: float, time: float, key: Key, text: bytes) -> Iterator[Line]:
        waits = text.endswith(b"\r")  # it may still become \r\n
        *whole, rest = (text[:-1] if waits else text).replace(b"\r\n", b"\n").split(b"\n")
        for line in whole:
            *states, last = line.split(b"\r")
            for state in states:
                yield Line(begun, key, state, overwritten=True)
            yield Line(begun, key, last)
            begun = time
        *states, rest = rest.split(b"\r")
        for state in states:
            yield Line(begun, key, state, overwritten=True)
            begun = time
        if rest or waits:
            yield from self._keep(begun, key, rest + b"\r" * waits)

    def _keep(self, begun: float, key: Key, rest: bytes) -> Iterator[Line]:
        """Keep an unfinished line, or yield it as a line where there is no room for it."""
        self._put(begun, key, rest)
        if len(rest) >= _LONGEST or self._held > _ALL:
            yield from self.end(key)

    def _extend(self, key: Key, data: bytes) -> bool:
        """Add what ends no line to the source's unfinished line, in place: one of many pieces would be copied
        for each. Return whether there is such a line, without a last carriage return."""
        found = self._begun.get(key)
        if found is None or found[1].endswith(b"\r"):
            return False
        found[1].extend(data)
        self._held += len(data)
        return True

    def _put(self, begun: float, key: Key, text: bytes) -> None:
        self._begun[key] = (begun, bytearray(text))
        self._held += len(text) + _ENTRY

    def _take(self, key: Key) -> tuple[float, bytes] | None:
        found = self._begun.pop(key, None)
        if found is not None:
            self._held -= len(found[1]) + _ENTRY
            return found[0], bytes(found[1])
        return None

    def skip(self, time: float, key: Key, data: bytes) -> None:
        r"""Drop the lines that this piece of output completes; keep an unfinished last line.

        >>> lines = Lines()
        >>> lines.skip(0.0, (0, 0, 1), b"one\n10%\rtw")
        >>> [line.data for line in lines.feed(0.0, (0, 0, 1), b"o\n")]
        [b'two']
        """
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        if not end and self._extend(key, data):
            held = self._begun[key][1]
            if len(held) > _LONGEST:
                self._held -= len(held) - _LONGEST
                del held[:-_LONGEST]
            return
        begun, kept = self._take(key) or (time, b"")
        if not end:
            self._put(begun, key, (kept + data)[-_LONGEST:])
        elif end < len(data):
            self._put(time, key, data[end:])

    def unfinished(self) -> list[Line]:
        """Return the unfinished lines, oldest first, a last carriage return included."""
        begun = sorted(self._begun.items(), key=lambda item: item[1][0])
        return [Line(time, key, bytes(text)) for key, (time, text) in begun]

    def end_rank(self, rank: int, node: int) -> Iterator[Line]:
        """Yield a rank's unfinished lines, because a notice concerns what comes after them."""
        for stream in (1, 2):
            yield from self.end((rank, node, stream))

    def end(self, key: Key) -> Iterator[Line]:
        """Yield the unfinished line of one rank, node and stream as finished."""
        found = self._take(key)
        if found is not None:
            time, text = found
            yield Line(time, key, text[:-1] if text.endswith(b"\r") else text)
