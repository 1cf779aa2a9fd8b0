"""The newest sample of each node and rank of one launch, as JSON.

A record becomes text when its sample comes, and not again for each version of the file: of 300 nodes a few
have something new in each.
"""

from __future__ import annotations

import json
from typing import Sequence  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.sample.sample_records import LiveNode, LiveRank, RankSample, Sample

__all__ = ["MOST_METRICS", "LiveSamples", "finite"]

MOST_METRICS = 32
"""Metrics that are kept of a rank."""


class LiveSamples:
    """Keeps the newest samples of launch ``attempt``."""

    def __init__(self, attempt: int) -> None:
        self._time, self._attempt = 0.0, attempt
        self._ranks: dict[int, LiveRank] = {}
        self._node_texts: dict[str, str] = {}
        self._rank_texts: dict[int, str] = {}

    def add(self, node: str, sample: Sample, now: float) -> None:
        """Keep a node's sample that came at ``now``, in Unix seconds."""
        self._time = now
        for one in sample["node"]:
            newest: LiveNode = {**one, "time": now}
            self._node_texts[node] = _item(node, newest)
        for rank in sample["ranks"]:
            self._add_rank(node, rank, now)

    def _add_rank(self, node: str, sample: RankSample, now: float) -> None:
        number = sample["rank"]
        before = self._ranks.get(number)
        metrics = dict(before["metrics"]) if before else {}
        for name, text in sample["metrics"].items():
            value = finite(text)
            metrics.pop(name, None)
            if value is not None and len(metrics) < MOST_METRICS:
                metrics[name] = value
        self._keep(
            number,
            {
                "time": now,
                "node": node,
                "cpu_permille": sample["cpu_permille"],
                "memory": sample["memory"],
                "silent_since": now - sample["silent_ms"] / 1000,
                "metrics": metrics,
                "ended": False,
            },
        )

    def _keep(self, number: int, newest: LiveRank) -> None:
        self._ranks[number] = newest
        self._rank_texts[number] = _item(str(number), newest)

    def end(self, ranks: Sequence[int], now: float) -> None:
        """Mark ranks that have ended; one that was never sampled stays unknown."""
        for rank in ranks:
            known = self._ranks.get(rank)
            if known is not None:
                self._time = now
                self._keep(rank, {**known, "ended": True, "cpu_permille": 0, "memory": 0})

    def as_json(self) -> bytes:
        """Return the :class:`~launch.remote.sample.sample_records.Live` as JSON."""
        head = f'"time":{self._time!r},"attempt":{self._attempt}'
        nodes, ranks = ",".join(self._node_texts.values()), ",".join(self._rank_texts.values())
        return f'{{{head},"nodes":{{{nodes}}},"ranks":{{{ranks}}}}}'.encode()


def _item(name: str, record: LiveNode | LiveRank) -> str:
    """Return an item of a JSON object."""
    return f"{json.dumps(name)}:{json.dumps(record, separators=(',', ':'))}"


def finite(text: str) -> float | None:
    """Return the finite number that a runner has sent; None for anything else.

    >>> finite("1e3"), finite("nan"), finite("1e999"), finite("x")
    (1000.0, None, None, None)
    """
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0 else None
