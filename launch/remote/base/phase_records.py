"""Types of a job's phases, what it did from when to when, and of its nodes' price. Ranks do not import it."""

from __future__ import annotations

from typing import Literal, TypedDict

from launch.remote.base.health_records import Timed
from launch.remote.reading import Count, Seconds

__all__ = ["Phase", "PhaseEvent", "PhaseName", "PlannedPrice"]

PhaseName = Literal[
    "stage-code",
    "stage-data",
    "stage-environment",
    "queue",
    "probe",
    "start",
    "look",
    "run",
    "end",
    "upload",
]
"""``start``: the nodes' runners are reached, after a restart's pause; ``look``: the nodes are looked at and
made ready, to the start of the last rank; ``run``: ranks run; ``end``: from the last rank's end, or the first
order to end, until nothing of the launch is left."""


class Phase(TypedDict):
    """A phase of a job."""

    phase: PhaseName
    start: Seconds
    """Unix seconds by the head's clock; in a plan, seconds since the job was submitted: before it."""
    end: Seconds
    bytes: Count
    """That it moved; 0 where it moves none, or none were counted."""
    verdict: str
    """Why it did not end as it should; empty where it did."""


class PhaseEvent(Phase, Timed):
    """A phase that has ended."""

    event: Literal["phase"]
    attempt: Count
    """Of the launch that it belongs to: 0 for the job's first."""


class PlannedPrice(TypedDict):
    """List price of each node of a job, as known on the operator's machine at the launch."""

    per_hour: float
    currency: Literal["USD"]
    kind: Literal["regular", "spot"]
    source: str
    """The price list, and the day on which it was read."""
