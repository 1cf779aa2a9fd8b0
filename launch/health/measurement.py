"""What the search for slow nodes measures, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_high
from typing import Literal

__all__ = [
    "REPORT",
    "WARN",
    "Figure",
    "Group",
    "Measure",
    "Measurement",
    "NodeBandwidth",
    "SlowPair",
    "Verdict",
    "typical",
]

Group = tuple[str, ...]
"""Nodes that are measured together."""
Verdict = Literal["healthy", "suspect", "sick", "unknown"]

WARN, REPORT = 0.85, 0.67
"""Parts of the usual bandwidth below which a node is suspect, and sick. Azure warns at 0.85 to 0.9 of what is
expected, and reports at 0.64 to 0.75: see ``allreduce_gbs`` of the catalogue's rows."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Bandwidth of one group."""

    group: Group
    gbs: float | None
    """GB/s of each node; None where it could not be measured."""
    problem: str = ""
    """Why it could not."""


Measure = Callable[[Sequence[Group]], Sequence[Measurement]]
"""Measures groups that share no node, all at once; returns the measurements in their order."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What a size is known to reach, in GB/s."""

    expected: float
    warn: float | None
    """Less is suspect; None where the source gives no limit: nodes are compared with their peers alone."""
    report: float | None
    """Less is worth a report to Azure."""
    source: str


@dataclass(frozen=True, slots=True)
class NodeBandwidth:
    """What the search found of a node."""

    node: str
    verdict: Verdict
    reason: str
    ratio: float | None = None
    """Its bandwidth as a part of its peers'."""
    pairs_below: int = 0
    pairs: int = 0
    again: tuple[float | None, ...] = ()
    """Its bandwidth as a part of its peers', each time that it was measured again; None: it failed."""
    is_unstable: bool = False
    """Whether those measurements contradict each other, so that they say nothing of the node."""


@dataclass(frozen=True, slots=True)
class SlowPair:
    """Two nodes that are as fast as others with their peers, and slow with each other."""

    group: Group
    ratio: float | None
    """Of their peers' bandwidth; None where nothing could be measured between them."""


def typical(values: Sequence[float]) -> float | None:
    """Return the usual bandwidth: of an even number, the greater of the two in the middle.

    >>> typical([4.0, 1.0]), typical([])
    (4.0, None)
    """
    return median_high(values) if values else None
