"""Positions in the plot of a measurement: throughput by nodes, and efficiency by ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.numbers import axis_top
from launch.scaling.published_lines import PublishedLine
from launch.scaling.scaling_verdict import Analysis

__all__ = ["HEIGHT", "WIDTH", "Line", "Mark", "Panel", "make_panels"]

WIDTH, HEIGHT = 420, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 10, 28, 40
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """A point, and the range of its repeats, in pixels."""

    x: float
    y: float
    low: float
    high: float
    text: str
    is_decided: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, in pixels."""

    kind: str
    """``measured``, ``linear`` or ``published``."""
    name: str
    path: str
    """As the attribute ``points`` of an SVG polyline."""
    end: tuple[float, float]
    label: int
    """Pixels from the end down to the name's base line: a line over TCP has its name below, for that of
    InfiniBand is above it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the two diagrams."""

    title: str
    x_name: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    """From counts, in powers of two, and values from 0, to pixels."""

    first: float
    last: float
    top: float

    def x(self, count: float) -> float:
        low, high = math.log2(self.first), math.log2(self.last)
        share = 0.5 if high == low else (math.log2(count) - low) / (high - low)
        return round(_LEFT + 12 + share * (WIDTH - _LEFT - _RIGHT - 24), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - _BOTTOM - value / self.top * (HEIGHT - _TOP - _BOTTOM), 1)

    def line(self, kind: str, name: str, points: Sequence[tuple[float, float]]) -> Line:
        placed = [(self.x(count), self.y(value)) for count, value in points]
        label = 12 if name.endswith("TCP") else -4
        return Line(kind, name, " ".join(f"{x:g},{y:g}" for x, y in placed), placed[-1], label)


def make_panels(analysis: Analysis, metric: str, published: Sequence[PublishedLine]) -> tuple[Panel, ...]:
    """Return the diagrams; none without points. Published lines are in that of the efficiency."""
    if not analysis.points:
        return ()
    return (_throughput(analysis, metric), _efficiency(analysis, published))


def _throughput(analysis: Analysis, metric: str) -> Panel:
    points = analysis.points
    base = points[0]
    linear = [(point.nodes, base.median * point.nodes / base.nodes) for point in points]
    top = axis_top(max(*(point.high for point in points), *(value for _, value in linear)))
    scale = _Scale(points[0].nodes, points[-1].nodes, top)
    return Panel(
        title=metric,
        x_name="nodes",
        x_ticks=tuple((scale.x(point.nodes), str(point.nodes)) for point in points),
        y_ticks=_ticks(scale),
        lines=(
            scale.line("linear", "linear", linear),
            scale.line("measured", "measured", [(point.nodes, point.median) for point in points]),
        ),
        marks=tuple(
            Mark(
                scale.x(point.nodes),
                scale.y(point.median),
                scale.y(point.low),
                scale.y(point.high),
                f"{point.nodes} nodes: {point.median:.4g} ({point.low:.4g} to {point.high:.4g})",
                point.is_decided or point is base,
            )
            for point in points
        ),
    )


def _efficiency(analysis: Analysis, published: Sequence[PublishedLine]) -> Panel:
    placed = list(zip(analysis.ranks, analysis.points, strict=True))
    counts = sorted({*analysis.ranks, *(count for line in published for count, _ in line.points)})
    highest = max(1.0, *(point.efficiency_high for point in analysis.points))
    scale = _Scale(counts[0], counts[-1], axis_top(highest))
    lines = [scale.line("linear", "linear", [(counts[0], 1.0), (counts[-1], 1.0)])]
    lines += [scale.line("published", line.name, line.points) for line in published]
    lines.append(scale.line("measured", "measured", [(ranks, point.efficiency) for ranks, point in placed]))
    return Panel(
        title="part of linear",
        x_name="ranks",
        x_ticks=tuple((scale.x(count), str(count)) for count in counts),
        y_ticks=tuple((y, f"{100 * float(text):.0f} %") for y, text in _ticks(scale)),
        lines=tuple(lines),
        marks=tuple(
            Mark(
                scale.x(ranks),
                scale.y(point.efficiency),
                scale.y(point.efficiency_low),
                scale.y(point.efficiency_high),
                f"{ranks} ranks: {100 * point.efficiency:.1f} % of linear",
                point.is_decided or point is analysis.points[0],
            )
            for ranks, point in placed
        ),
    )


def _tick(value: float) -> str:
    """Return a value as text, without an exponent where that is short.

    >>> _tick(4000.0), _tick(0.25), _tick(2.5e9)
    ('4000', '0.25', '2.5e+09')
    """
    return f"{value:.0f}" if 100 <= value < 10**6 else f"{value:.3g}"  # noqa: PLR2004


def _ticks(scale: _Scale) -> tuple[tuple[float, str], ...]:
    values = [scale.top * part / _TICKS for part in range(_TICKS + 1)]
    return tuple((scale.y(value), _tick(value)) for value in values)
