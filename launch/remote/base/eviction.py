"""Eviction notices: Azure's notice on a node, as the node's agent writes it, and a supervisor's use of it."""

from __future__ import annotations

import os
import time

from launch.remote.base import timing
from launch.remote.base.files import expand_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from launch.remote.base.payloads import EvictionNotice, Notice

__all__ = ["Eviction", "format_evictions", "notice", "stamp", "words"]

_PATH = "~/.ranklift/agent/notice.json"
_SOON_S = 12 * 3600


def stamp() -> tuple[int, int] | None:
    """Return a stamp that changes with the notice on this node; None without a notice."""
    try:
        entry = os.stat(expand_home(_PATH))
    except OSError:
        return None
    return entry.st_ino, entry.st_mtime_ns


def notice() -> EvictionNotice:
    """Return the notice on this node as a runner reports it."""
    import json  # costs as much as the rest of a rank's start; notices are rare

    try:
        with open(expand_home(_PATH), encoding="utf-8") as file:
            found: Notice = json.load(file)
        left = float(found["deadline"]) - time.monotonic()
        at, kind, at_once = int(found["not_before"]), str(found["type"]), int(bool(found["at_once"]))
    except (OSError, ValueError, ArithmeticError, KeyError, TypeError):
        return {"type": "", "at": 0, "left_ms": 0, "at_once": 0}
    return {"type": kind, "at": at, "left_ms": max(0, int(left * 1000)), "at_once": at_once}


def words(kind: str, at: float, now: float) -> str:
    """Return the message about a node's eviction; ``at`` and ``now`` in Unix seconds.

    >>> words("Preempt", 1474309787, 1474309757)
    'will be taken by Azure at 18:29:47 UTC (Preempt)'
    >>> words("Redeploy", 1474309787, 1474000000)
    'will be taken by Azure at 2016-09-19 18:29:47 UTC (Redeploy)'
    """
    form = "%H:%M:%S UTC" if abs(at - now) < _SOON_S else "%Y-%m-%d %H:%M:%S UTC"
    return f"will be taken by Azure at {time.strftime(form, time.gmtime(at))} ({kind})"


class Eviction:
    """A node's notice as its runner reported it; times are by this machine's monotonic clock."""

    def __init__(self, node: str, fields: EvictionNotice, now: float) -> None:
        self.node = node
        self.words = words(fields["type"], fields["at"], time.time())
        self._deadline: float = now + fields["left_ms"] / 1000
        self._at_once = bool(fields["at_once"])

    def due(self, grace: float, now: float) -> bool:
        """Return whether ranks with a grace of ``grace`` seconds must be stopped now."""
        last = self._deadline - max(grace, timing.EVICTION_LEAST_S) - timing.EVICTION_SPARE_S
        return self._at_once or now >= last

    def grace(self, own: float, now: float) -> float:
        """Return the grace with which all ranks end before the node does; ``own`` is the job's."""
        left = self._deadline - now - timing.EVICTION_OVER_S
        return max(timing.EVICTION_SHORTEST_S, min(max(own, timing.EVICTION_LEAST_S), left))


def format_evictions(evictions: Iterable[Eviction]) -> str:
    """Return all evictions in one line, with nodes of the same reason folded."""
    from launch.remote.base.names import fold

    nodes: dict[str, list[str]] = {}
    for one in evictions:
        nodes.setdefault(one.words, []).append(one.node)
    return "; ".join(f"{fold(names)} {fate}" for fate, names in nodes.items())
