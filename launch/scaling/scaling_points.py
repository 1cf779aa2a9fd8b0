"""The points of a measurement: throughput, spread and efficiency at each number of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

__all__ = ["LEAST_ERROR", "Point", "Samples", "make_points", "relative_error"]

Samples = Mapping[int, Sequence[float]]
"""By number of nodes, the throughput of each repeat."""

LEAST_ERROR = 0.005
"""Least standard error of a point's throughput, as a part of it: repeats within the same hour differ by less
than those of another day, and figures are printed with three digits."""
_CONFIDENCE = 0.95
_OF_A_MEDIAN = {1: 1.0, 2: 0.7071, 3: 0.6698, 4: 0.5456, 5: 0.5356, 6: 0.4633, 7: 0.4590}
"""Standard error of the median of n normal values, in their standard deviations (order statistics of the
normal distribution: H. L. Harter, Order Statistics and Their Use, vol. 1); more values: sqrt(pi / 2n)."""
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one number of nodes."""

    nodes: int
    values: tuple[float, ...]
    """Throughput of each repeat."""
    median: float
    low: float
    high: float
    efficiency: float
    """Median, as a part of what linear growth from the fewest nodes gives; 1 for these themselves."""
    efficiency_low: float
    efficiency_high: float
    """Range of the efficiency: the lowest repeat over the highest of the fewest nodes, and the reverse."""
    is_decided: bool
    """Whether that range is narrower than the efficiency's distance from linear; a single run, here or at the
    fewest nodes, decides nothing."""

    @property
    def spread(self) -> float:
        """Range of the repeats, as a part of their median."""
        return (self.high - self.low) / self.median

    @property
    def lost(self) -> float:
        """Part of the ranks' time that does not become throughput, against the fewest nodes."""
        return 1.0 - self.efficiency


def make_points(samples: Samples) -> list[Point]:
    """Return the points in rising order of nodes; numbers of nodes without a repeat have none.

    >>> [point.efficiency for point in make_points({4: [300.0, 302.0], 1: [100.0, 100.0], 2: []})]
    [1.0, 0.7525]
    """
    counts = sorted(nodes for nodes, values in samples.items() if values)
    points: list[Point] = []
    for nodes in counts:
        values = samples[nodes]
        base, linear = samples[counts[0]], nodes / counts[0]
        is_base = nodes == counts[0]
        middle = median(values)
        efficiency = middle / (linear * median(base))
        low, high = min(values) / (linear * max(base)), max(values) / (linear * min(base))
        is_repeated = len(values) > 1 and len(base) > 1
        points.append(
            Point(
                nodes=nodes,
                values=tuple(values),
                median=middle,
                low=min(values),
                high=max(values),
                efficiency=efficiency,
                efficiency_low=1.0 if is_base else low,
                efficiency_high=1.0 if is_base else high,
                is_decided=is_repeated and high - low < abs(1.0 - efficiency),
            )
        )
    return points


def relative_error(points: Sequence[Point]) -> tuple[Mapping[int, float], float] | None:
    """Return the standard error of each point's median, as a part of it, and the factor of a 95 % interval.

    The standard deviation is that of all points together, as a part of their means: three repeats alone say
    little of theirs. None where no number of nodes was repeated.
    """
    freedom = sum(len(point.values) - 1 for point in points)
    if freedom < 1:
        return None
    squares = sum((one / fmean(point.values) - 1) ** 2 for point in points for one in point.values)
    deviation = math.sqrt(squares / freedom)
    errors = {point.nodes: max(LEAST_ERROR, deviation * _of_a_median(len(point.values))) for point in points}
    return errors, _student(freedom)


def _of_a_median(count: int) -> float:
    return _OF_A_MEDIAN.get(count) or math.sqrt(math.pi / (2 * count))


def _student(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t.

    >>> _student(2), round(_student(20), 3)
    (4.303, 2.086)
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
