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
    "is_outlier",
    "typical",
]

Group = tuple[str, ...]
"""Nodes that are measured together."""
Verdict = Literal["healthy", "suspect", "sick", "unknown"]

WARN, REPORT = 0.85, 0.67
"""Parts of the usual bandwidth below which a node is suspect, and sick. Azure warns at 0.85 to 0.9 of what is
expected, and reports at 0.64 to 0.75: see ``allreduce_gbs`` of the catalogue's rows."""
_Z = -2.0
"""Modified z-score below which a measurement is an outlier."""
_TO_SIGMA = 0.6745
"""Median absolute deviation of a normal distribution, in standard deviations."""
_LEAST_SPREAD = 0.01
"""Part of the usual bandwidth that equal measurements differ by at least."""
_FEW = 4
"""Fewer measurements than this have no spread worth the name."""


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


def is_outlier(value: float | None, values: Sequence[float]) -> bool:
    """Return whether a bandwidth is less than those of its peers; one that could not be measured is.

    It has to be below :data:`WARN` of the usual bandwidth and, among four and more, below a modified z-score
    of -2. The deviation is that of the upper half, which slow nodes do not widen.

    >>> is_outlier(4.0, [10.0, 10.1, 9.9, 10.0, 4.0]), is_outlier(9.9, [10.0, 10.1, 9.9, 10.0, 4.0])
    (True, False)
    >>> is_outlier(5.0, [10.0, 5.0, 15.0, 20.0, 12.0, 8.0]), is_outlier(None, [1.0])
    (False, True)
    """
    usual = typical(values)
    if value is None or usual is None:
        return value is None
    if value >= WARN * usual:
        return False
    if len(values) < _FEW:
        return True
    deviation = median_high([one - usual for one in values if one >= usual])
    return _TO_SIGMA * (value - usual) / max(deviation, _LEAST_SPREAD * usual) < _Z
