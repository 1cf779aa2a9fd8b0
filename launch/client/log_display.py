"""Fewer lines for a reader: thinned progress bars, lines that match, merged equal lines of many ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from launch.client.events import Event, LogLine, StreamName
from launch.printable import without_escapes

__all__ = ["Bars", "Merge", "SharedLine", "matches"]

_BAR_EVERY = timedelta(seconds=10)
_TOGETHER = timedelta(seconds=1)
"""The longest that a line waits for the same line of other ranks."""
_WAITING = 10_000
_HELD = 64 << 20
"""Bytes of waiting lines and of their ranks, at most: a job's ranks may all print as much as they can."""
_MEMBER = 100
"""Bytes that a rank takes in a line that waits, about."""
_BARS = 100_000
"""Progress bars whose last state is remembered."""

_Who = tuple[int | None, str]


def matches(line: LogLine, pattern: re.Pattern[str]) -> bool:
    """Return whether a line contains the pattern; notices always match: they report what was not searched."""
    text = without_escapes(line.data).decode("utf-8", "replace")
    return line.stream == "notice" or pattern.search(text) is not None


class Bars:
    """A filter that thins progress bars to one state every ten seconds and the last."""

    def __init__(self) -> None:
        self._shown: dict[tuple[_Who, str], datetime] = {}

    def shows(self, line: LogLine) -> bool:
        """Return whether to show ``line``, the next in order."""
        if not line.overwritten:
            return True
        key = ((line.rank, line.node), line.stream)
        if not line.data.strip() or (key in self._shown and line.time - self._shown[key] < _BAR_EVERY):
            return False
        self._shown.pop(key, None)
        self._shown[key] = line.time
        if len(self._shown) > _BARS:
            del self._shown[next(iter(self._shown))]
        return True


@dataclass(frozen=True, slots=True)
class SharedLine:
    """A line that several ranks wrote within a second."""

    ranks: tuple[int | None, ...]
    nodes: tuple[str, ...]
    stream: StreamName
    data: bytes


@dataclass(slots=True)
class _Waiting:
    since: datetime
    stream: StreamName
    data: bytes
    who: dict[_Who, None] = field(default_factory=dict)

    def as_shared(self) -> SharedLine:
        ranks = dict.fromkeys(rank for rank, _ in self.who)
        nodes = dict.fromkeys(node for _, node in self.who)
        return SharedLine(tuple(ranks), tuple(nodes), self.stream, self.data)


class Merge:
    """A filter that merges equal lines, written by many ranks within a second, into one that comes after the
    previous line of every rank."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._equal: dict[tuple[str, bytes], list[int]] = {}
        self._last: dict[_Who, int] = {}
        self._count = self._held = 0

    def feed(self, event: Event) -> Iterator[SharedLine]:
        """Yield the lines that need not wait any longer: all of them when the event is not a line."""
        if not isinstance(event, LogLine):
            yield from self.rest()
            return
        yield from self._until(event.time - _TOGETHER)
        who = (event.rank, event.node)
        key = (event.stream, event.data)
        before = self._last.get(who, -1)
        place = next((n for n in self._equal.get(key, ()) if n > before), None)
        if place is None or event.stream == "notice":
            place = self._count
            self._count += 1
            self._waiting[place] = _Waiting(event.time, event.stream, event.data)
            self._equal.setdefault(key, []).append(place)
            self._held += len(event.data)
        self._waiting[place].who[who] = None
        self._held += _MEMBER
        self._last[who] = place
        while len(self._waiting) > _WAITING or self._held > _HELD:
            yield self._take(next(iter(self._waiting)))

    def rest(self) -> Iterator[SharedLine]:
        """Yield every line that still waits."""
        while self._waiting:
            yield self._take(next(iter(self._waiting)))

    def _until(self, moment: datetime) -> Iterator[SharedLine]:
        while self._waiting:
            first = next(iter(self._waiting))
            if self._waiting[first].since > moment:
                return
            yield self._take(first)

    def _take(self, place: int) -> SharedLine:
        line = self._waiting.pop(place)
        self._held -= len(line.data) + _MEMBER * len(line.who)
        for who in line.who:
            if self._last[who] == place:
                del self._last[who]
        key = (line.stream, line.data)
        self._equal[key].remove(place)
        if not self._equal[key]:
            del self._equal[key]
        return line.as_shared()
