"""The cost of a job's nodes by the list price of its plan."""

from __future__ import annotations

import math

__all__ = ["job_cost", "node_cost"]

_HOUR_S = 3600.0


def node_cost(per_hour: float, nodes: int, start: float, end: float) -> float:
    """Return what nodes cost between two Unix times, in the currency of their price per hour.

    >>> node_cost(24.0, 3, 1000.0, 1955.0)
    19.1
    """
    return per_hour * nodes * max(0.0, end - start) / _HOUR_S


def job_cost(price: object, nodes: int, start: float | None, end: float) -> float | None:
    """Return the cost in USD of a job that has its nodes since ``start``; None before it has them, and where
    ``price`` is not a :class:`~launch.remote.base.phase_records.PlannedPrice` in USD.

    >>> job_cost({"per_hour": 24.0, "currency": "USD"}, 3, 1000.0, 1955.0)
    19.1
    >>> job_cost(None, 3, 1000.0, 1955.0)
    """
    if start is None or not isinstance(price, dict) or price.get("currency") != "USD":
        return None
    per_hour = price.get("per_hour")
    if isinstance(per_hour, bool) or not isinstance(per_hour, (int, float)):
        return None
    if not math.isfinite(per_hour) or per_hour <= 0:
        return None
    return node_cost(per_hour, nodes, start, end)
