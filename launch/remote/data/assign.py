"""Which node fetches which part from where: the head's decisions, without any input or output.

Each part leaves storage once, and again only when whoever had it is lost. What a node has, it serves to the
others at once. A node gets the rarest part of a few that it could get, so that parts spread evenly.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from launch.remote.data import faults

__all__ = ["Assigner", "Order", "Pace"]

_FROM_STORAGE, _FROM_PEERS, _SERVED = 32, 4, 4
"""Largest number of fetches at a time: of a node from storage, of a node from others, from one node."""
_SAMPLE, _HOLDERS = 8, 4
"""Parts that a node could get, and nodes that have such a part, which are compared."""
_OTHERS = 2
"""Other nodes that are looked at after an event of one: it may have freed a source."""
_ATTEMPTS, _PAIR_ATTEMPTS = 6, 3
"""Failures of a part at storage that end the staging; failures in a row after which a node avoids another."""
_PAIR_PAUSE_S = 1.0
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.25, 30.0
_RATE_BURST_S = 1.0
_BUSY_LIMIT_S = 300.0
"""Time in which storage may be busy, or silent, without a pause before the staging ends."""


class Order(NamedTuple):
    """A node fetches a part from another, or from storage where ``source`` is empty."""

    node: str
    part: int
    source: str


class Pace:
    """Number of requests to storage at a time: more while that is faster, half when storage is busy."""

    def __init__(self, cap: int, first: int) -> None:
        self.limit = min(cap, first)
        self._cap = cap
        self._since: float | None = None
        self._bytes = self._done = 0
        self._rate = 0.0

    def on_done(self, size: int, now: float) -> None:
        """Take note of a finished request."""
        if self._since is None:
            self._since = now
            return
        self._bytes += size
        self._done += 1
        if self._done < 2 * self.limit or now <= self._since:
            return
        rate = self._bytes / (now - self._since)
        if rate > 1.1 * self._rate:
            self._rate = rate
            self.limit = min(self._cap, self.limit + max(1, self.limit // 2))
        self._since, self._bytes, self._done = now, 0, 0

    def on_busy(self) -> None:
        """Halve the number of requests."""
        self.limit = max(1, self.limit // 2)
        self._since, self._bytes, self._done = None, 0, 0


class _Node:
    def __init__(self, held: set[int]) -> None:
        self.held = held
        self.flight: dict[int, str] = {}
        self.ready: list[int] = []
        """Parts that it could get from others; some may be void."""
        self.downloads = self.takes = self.serves = 0
        self.failures: dict[str, tuple[int, float]] = {}
        """By other node, failures in a row, and the time until which it is not asked again."""


class Assigner:
    """Parts, who has them and who fetches them. ``failure`` is why the staging cannot succeed, if so."""

    def __init__(
        self, sizes: Sequence[int], cap: int, nodes: int, seed: int = 0, rate: int | None = None
    ) -> None:
        """Parts have ``sizes`` in bytes; ``nodes`` are expected, ``cap`` bounds the requests to storage, and
        ``rate`` their bytes a second."""
        self.sizes = sizes
        self.digests: dict[int, str] = {}
        self.failure = ""
        self.trouble = ""
        """Why storage is waited for, while it is."""
        self.from_storage = 0
        self.pace = Pace(cap, max(16, min(64, nodes)))
        self._nodes: dict[str, _Node] = {}
        self._turn: deque[str] = deque()
        self._holders: list[list[str]] = [[] for _ in sizes]
        self._cold = deque(range(len(sizes)))
        """Parts that nobody has or fetches from storage."""
        self._later: list[tuple[float, int]] = []
        self._alone: deque[tuple[str, int]] = deque()
        """Parts that a node must get from storage, for it reaches nobody who has them."""
        self._again: set[int] = set()
        """Those, until they have been fetched: others who miss them wait."""
        self._downloads = 0
        self._attempts: dict[int, int] = {}
        self._paused_until = 0.0
        self._rate, self._rate_paid_until = rate, 0.0
        self._busy_since: float | None = None
        self._random = random.Random(seed)  # noqa: S311  (which part comes next is not a secret)

    def held(self, node: str) -> int:
        """Return the bytes that a node holds."""
        found = self._nodes.get(node)
        return sum(self.sizes[part] for part in found.held) if found else 0

    def is_whole(self, node: str) -> bool:
        """Return whether a node holds every part."""
        return node in self._nodes and len(self._nodes[node].held) == len(self.sizes)

    def join(self, node: str, have: Iterable[tuple[int, str]]) -> None:
        """Add a node with the parts, and their digests, that it holds already."""
        known = set()
        for part, digest in have:
            if 0 <= part < len(self.sizes) and self.digests.setdefault(part, digest) == digest:
                known.add(part)
        self._nodes[node] = _Node(known)
        self._turn.append(node)
        for part in known:
            self._gain(node, part)
        self._nodes[node].ready = [
            part for part, holders in enumerate(self._holders) if holders and part not in known
        ]
        # Parts of nodes that have left wait for somebody who wants them.
        self._cold = deque(part for part in self._cold if not self._holders[part])

    def leave(self, node: str) -> None:
        """Remove a lost node: what it was to download, or alone had, is downloaded by others."""
        gone = self._nodes.pop(node, None)
        if gone is None:
            return
        self._turn.remove(node)
        for part, source in gone.flight.items():
            self._release(gone, source)
            if not source:
                self._again.discard(part)
            if not source and not self._holders[part]:
                self._cold.appendleft(part)
        for part in gone.held:
            self._lose(node, part)

    def on_took(self, node: str, part: int, digest: str, now: float) -> None:
        """Take note of a part that a node holds from now on; one that has left may still report."""
        found = self._nodes.get(node)
        if found is None:
            return
        source = found.flight.pop(part)
        self._release(found, source)
        if source:
            found.failures.pop(source, None)
        else:
            self._again.discard(part)
            self.from_storage += self.sizes[part]
            self.pace.on_done(self.sizes[part], now)
            self._busy_since, self.trouble = None, ""
            if self.digests.get(part, digest) != digest:  # what storage says counts
                for other in list(self._holders[part]):
                    self._nodes[other].held.discard(part)
                    self._lose(other, part)
                    self._nodes[other].ready.append(part)
            self.digests[part] = digest
        found.held.add(part)
        self._gain(node, part)

    def on_missed(self, node: str, part: int, fault: str, reason: str, now: float, wait: float = 0.0) -> str:
        """Take note of a part that a node could not fetch, with the ``fault`` and the seconds to wait; return
        the node that has to fetch it again because its copy differs, or ""."""
        found = self._nodes.get(node)
        if found is None:
            return ""
        source = found.flight.pop(part)
        self._release(found, source)
        if not source:
            self._again.discard(part)
            self._on_storage_fault(part, fault, reason, now, wait)
            if self._holders[part]:
                found.ready.append(part)
            return ""
        count, until = found.failures.get(source, (0, now))
        if now >= until:  # those at the same time are one
            found.failures[source] = (count + 1, now + _PAIR_PAUSE_S)
        other = self._nodes.get(source)
        is_wrong = fault == faults.WRONG and other is not None and part in other.held
        if is_wrong and other is not None:
            other.held.discard(part)
            self._lose(source, part)
            other.ready.append(part)
        if self._holders[part]:
            found.ready.append(part)
        return source if is_wrong else ""

    def orders(self, now: float, about: str = "") -> list[Order]:
        """Return what to fetch now, after an event of the node ``about``; without it, look at every node."""
        orders: list[Order] = []
        while self._later and self._later[0][0] <= now:
            part = heapq.heappop(self._later)[1]
            if not self._holders[part]:
                self._cold.append(part)
        if now >= self._paused_until:
            self._from_storage(orders, now)
        if about in self._nodes:
            self._from_peers(about, orders, now)
        for _ in range(min(_OTHERS, len(self._turn)) if about else len(self._turn)):
            self._turn.rotate(-1)
            self._from_peers(self._turn[0], orders, now)
        return orders

    def _from_storage(self, orders: list[Order], now: float) -> None:
        while self._downloads < self.pace.limit and (self._alone or self._cold):
            if self._rate_paid_until > now:
                return
            if self._alone:
                name, part = self._alone.popleft()
                found = self._nodes.get(name)
                if found is not None and part not in found.held and part not in found.flight:
                    orders.append(self._download(name, part, now))
                else:
                    self._again.discard(part)
                continue
            part = self._cold[0]
            able = (
                (node.downloads, len(node.held), name)
                for name, node in self._nodes.items()
                if node.downloads < _FROM_STORAGE and part not in node.flight
            )
            name = min(able, default=(0, 0, ""))[2]
            if not name:
                return
            self._cold.popleft()
            orders.append(self._download(name, part, now))

    def _from_peers(self, name: str, orders: list[Order], now: float) -> None:
        node = self._nodes[name]
        while node.takes < _FROM_PEERS and node.ready:
            best: tuple[int, int, str] | None = None
            for _ in range(min(_SAMPLE, len(node.ready))):
                place = self._random.randrange(len(node.ready))
                part = node.ready[place]
                holders = self._holders[part]
                if not holders or part in node.held or part in node.flight:
                    node.ready[place] = node.ready[-1]
                    node.ready.pop()
                    if not node.ready:
                        break
                    continue
                source = self._source(node, holders, now)
                if source is None and part not in self._again:
                    self._again.add(part)
                    node.ready[place] = node.ready[-1]
                    node.ready.pop()
                    self._alone.append((name, part))
                    if not node.ready:
                        break
                elif source and (best is None or len(holders) < best[0]):
                    best = (len(holders), part, source)
            if best is None:
                return
            orders.append(self._order(name, best[1], best[2]))

    def _source(self, node: _Node, holders: list[str], now: float) -> str | None:
        """Return a holder with a free place; "" where none has, None where the node reaches none."""
        some = holders if len(holders) <= _HOLDERS else self._random.choices(holders, k=_HOLDERS)
        if node.failures:
            able = [name for name in holders if node.failures.get(name, (0, 0.0))[0] < _PAIR_ATTEMPTS]
            some = [name for name in able if node.failures.get(name, (0, 0.0))[1] <= now]
            if not some:
                return "" if able else None
        least = min(some, key=lambda name: self._nodes[name].serves)
        return least if self._nodes[least].serves < _SERVED else ""

    def _download(self, name: str, part: int, now: float) -> Order:
        if self._rate is not None:  # what was not used of the last second may be used now
            paid = max(self._rate_paid_until, now - _RATE_BURST_S)
            self._rate_paid_until = paid + self.sizes[part] / self._rate
        return self._order(name, part, "")

    def _order(self, name: str, part: int, source: str) -> Order:
        node = self._nodes[name]
        node.flight[part] = source
        if source:
            node.takes += 1
            self._nodes[source].serves += 1
        else:
            node.downloads += 1
            self._downloads += 1
        return Order(name, part, source)

    def _release(self, node: _Node, source: str) -> None:
        if not source:
            node.downloads -= 1
            self._downloads -= 1
            return
        node.takes -= 1
        if source in self._nodes:
            self._nodes[source].serves = max(0, self._nodes[source].serves - 1)  # it may have come back

    def _gain(self, node: str, part: int) -> None:
        holders = self._holders[part]
        holders.append(node)
        if len(holders) == 1:
            for name, other in self._nodes.items():
                if name != node and part not in other.held and part not in other.flight:
                    other.ready.append(part)

    def _lose(self, node: str, part: int) -> None:
        holders = self._holders[part]
        holders.remove(node)
        if not holders and not any(other.flight.get(part) == "" for other in self._nodes.values()):
            self._cold.appendleft(part)

    def _on_storage_fault(self, part: int, fault: str, reason: str, now: float, wait: float) -> None:
        if fault == faults.REFUSED:
            self.failure = self.failure or reason
        elif fault == faults.BUSY:
            self.pace.on_busy()
            self.trouble = reason
            self._busy_since = now if self._busy_since is None else self._busy_since
            self._paused_until = max(self._paused_until, now + max(wait, _BACKOFF_S))
            if now - self._busy_since > _BUSY_LIMIT_S:
                self.failure = self.failure or f"{reason}, for {_BUSY_LIMIT_S:.0f} s"
        else:
            self._attempts[part] = self._attempts.get(part, 0) + 1
            if self._attempts[part] >= _ATTEMPTS:
                self.failure = self.failure or f"{reason} ({_ATTEMPTS} times)"
        if not self._holders[part]:
            pause = min(_BACKOFF_S * 2 ** self._attempts.get(part, 0), _LONGEST_BACKOFF_S)
            heapq.heappush(self._later, (now + max(wait, pause), part))
