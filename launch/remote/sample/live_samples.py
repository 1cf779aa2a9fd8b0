"""The newest sample of each node and rank of one launch."""

from __future__ import annotations

from typing import Sequence  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.sample.sample_records import Live, RankSample, Sample

__all__ = ["MOST_METRICS", "LiveSamples", "finite"]

MOST_METRICS = 32
"""Metrics that are kept of a rank."""


class LiveSamples:
    """Keeps the newest samples of launch ``attempt``; ``ranks`` are the nodes' names by rank."""

    def __init__(self, attempt: int) -> None:
        self.live: Live = {"time": 0.0, "attempt": attempt, "nodes": {}, "ranks": {}}

    def add(self, node: str, sample: Sample, now: float) -> None:
        """Keep a node's sample that came at ``now``, in Unix seconds."""
        self.live["time"] = now
        for one in sample["node"]:
            self.live["nodes"][node] = {**one, "time": now}
        for rank in sample["ranks"]:
            self._add_rank(node, rank, now)

    def _add_rank(self, node: str, sample: RankSample, now: float) -> None:
        number = str(sample["rank"])
        before = self.live["ranks"].get(number)
        metrics = dict(before["metrics"]) if before else {}
        for name, text in sample["metrics"].items():
            value = finite(text)
            metrics.pop(name, None)
            if value is not None and len(metrics) < MOST_METRICS:
                metrics[name] = value
        self.live["ranks"][number] = {
            "time": now,
            "node": node,
            "cpu_permille": sample["cpu_permille"],
            "memory": sample["memory"],
            "silent_since": now - sample["silent_ms"] / 1000,
            "metrics": metrics,
            "ended": False,
        }

    def end(self, ranks: Sequence[int], now: float) -> None:
        """Mark ranks that have ended; one that was never sampled stays unknown."""
        for rank in ranks:
            known = self.live["ranks"].get(str(rank))
            if known is not None:
                self.live["time"] = now
                known.update({"ended": True, "cpu_permille": 0, "memory": 0})


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
