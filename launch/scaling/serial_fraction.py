"""The serial fraction of a job whose work stays the same: Karp-Flatt's of each point, and Amdahl's of all.

Sources: G. M. Amdahl, "Validity of the single processor approach to achieving large scale computing
capabilities", AFIPS 1967; A. H. Karp and H. P. Flatt, "Measuring parallel processor performance",
Communications of the ACM 33 (1990) 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.scaling.scaling_points import Point, relative_error

__all__ = ["SerialFraction", "fit_serial_fraction", "karp_flatt"]


@dataclass(frozen=True, slots=True)
class SerialFraction:
    """Part of the time at the fewest nodes that more nodes do not shorten."""

    value: float
    error: float
    """Half of the 95 % interval."""
    rises: bool
    """Whether Karp-Flatt's figure rises beyond its error from the second point to the last: what is lost
    grows with the nodes, so it is communication or waiting rather than work that one node does alone."""

    @property
    def is_seen(self) -> bool:
        """Whether it differs from 0 by more than its error."""
        return abs(self.value) > self.error


def karp_flatt(point: Point, base: Point) -> float | None:
    """Return the experimentally determined serial fraction of a point; None for the base itself.

    >>> from launch.scaling.scaling_points import make_points
    >>> base, four = make_points({1: [1.0], 4: [1 / (0.2 + 0.8 / 4)]})
    >>> round(karp_flatt(four, base), 6)
    0.2
    """
    times = point.nodes / base.nodes
    if times == 1:
        return None
    speedup = point.median / base.median
    return (1 / speedup - 1 / times) / (1 - 1 / times)


def fit_serial_fraction(points: Sequence[Point]) -> SerialFraction | None:
    """Return the serial fraction that fits all points best; None where it has no error: without repeats, or
    with one point.

    The time for a piece of work is ``serial + parallel / p`` at p times the fewest nodes: a straight line
    over 1/p, fitted by least squares with each point's error as its weight. Where the points lie farther
    from the line than their errors, the error grows by as much.
    """
    errors = relative_error(points)
    if errors is None or len(points) < 2:  # noqa: PLR2004
        return None
    base = points[0]
    deviations, factor = errors
    rows = []
    for point in points:
        time = base.median / point.median
        rows.append((base.nodes / point.nodes, time, time * deviations[point.nodes]))
    serial, parallel, covariance = _line(rows)
    total = serial + parallel
    variance = (
        parallel**2 * covariance[0] + serial**2 * covariance[1] - 2 * serial * parallel * covariance[2]
    ) / total**4
    excess = sum(((time - serial - parallel * x) / sigma) ** 2 for x, time, sigma in rows)
    freedom = len(rows) - 2
    stretch = math.sqrt(max(1.0, excess / freedom)) if freedom else 1.0
    error = factor * stretch * math.sqrt(variance)
    return SerialFraction(serial / total, error, _rises(points, deviations, factor))


def _line(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float, tuple[float, float, float]]:
    """Return the weighted least-squares line's constant and slope, their variances and covariance."""
    weights = [1 / sigma**2 for _, _, sigma in rows]
    s = sum(weights)
    sx = sum(w * x for w, (x, _, _) in zip(weights, rows, strict=True))
    sy = sum(w * y for w, (_, y, _) in zip(weights, rows, strict=True))
    sxx = sum(w * x * x for w, (x, _, _) in zip(weights, rows, strict=True))
    sxy = sum(w * x * y for w, (x, y, _) in zip(weights, rows, strict=True))
    d = s * sxx - sx * sx
    return (sxx * sy - sx * sxy) / d, (s * sxy - sx * sy) / d, (sxx / d, s / d, -sx / d)


def _rises(points: Sequence[Point], deviations: Mapping[int, float], factor: float) -> bool:
    """Return whether the last point's serial fraction exceeds the second's by more than both errors."""
    base, first, last = points[0], points[1], points[-1]
    low, high = karp_flatt(first, base), karp_flatt(last, base)
    if first is last or low is None or high is None:
        return False
    error = 0.0
    for point in (first, last):
        share = base.nodes / point.nodes
        error += (base.median / point.median * deviations[point.nodes] / (1 - share)) ** 2
    # The base's error moves both figures the same way, one more than the other.
    both = [base.median / one.median / (1 - base.nodes / one.nodes) for one in (first, last)]
    error += ((both[1] - both[0]) * deviations[base.nodes]) ** 2
    return high - low > factor * math.sqrt(error)
