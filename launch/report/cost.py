"""What the nodes of a job cost while it had them."""

from __future__ import annotations

from dataclasses import dataclass

from launch.durations import span as duration
from launch.numbers import counted
from launch.remote.metrics.job_cost import node_cost
from launch.report.facts import JobFacts

__all__ = ["NodePrice", "cost_text"]


@dataclass(frozen=True, slots=True)
class NodePrice:
    """List price of a node in USD an hour; ``unknown`` is why there is none."""

    size: str
    kind: str
    """``regular`` or ``spot``."""
    per_hour: float | None
    unknown: str = ""


def cost_text(facts: JobFacts, price: NodePrice) -> str:
    """Return the cost of a job's nodes from its start to its end, and what it is made of; or why it is
    unknown."""
    state = facts.report.state
    if state.started is None:
        return "nothing: it never started"
    end = facts.now if state.ended is None else state.ended.timestamp()
    seconds = max(0.0, end - state.started.timestamp())
    size = price.size and f" ({price.size})"
    what = f"{counted(len(state.nodes), 'node')}{size} for {duration(seconds)}"
    if price.per_hour is None:
        return f"unknown: {price.unknown}; it had {what}"
    total = node_cost(price.per_hour, len(state.nodes), 0.0, seconds)
    each = f"{price.per_hour:,.2f} USD an hour each, the {price.kind} list price"
    return f"{total:,.2f} USD: {what} at {each}; without disks, network and storage"
