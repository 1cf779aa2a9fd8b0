"""Charts of a report as coordinates: the template draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from launch.durations import span as duration
from launch.numbers import axis_top
from launch.remote.base.messages import size
from launch.remote.sample.sample_records import History, Series
from launch.report.timeline import PhaseSpan

__all__ = [
    "HEIGHT",
    "WIDTH",
    "Band",
    "Bar",
    "Chart",
    "Coordinates",
    "Line",
    "band_charts",
    "phase_bars",
    "rate_chart",
]

WIDTH, HEIGHT = 900, 160
_BAR_MIN = 0.5
"""Width of the shortest phase, which would be invisible otherwise."""
_POINTS = 60_000
"""Points of all lines of a chart together: some 600 kB."""
_COLOURS = 8


class Coordinates(str):
    """Points of a polyline as the template writes them: a text of this program's own, however long."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A phase on the axis of time."""

    x: float
    width: float
    phase: str
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """The course of a node's figure: pieces without gaps, each the ``points`` of a polyline."""

    node: str
    colour: int
    pieces: tuple[Coordinates, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """What all nodes have: from the least to the most, and the median."""

    outline: Coordinates
    middle: Coordinates


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure over time; either lines or bands."""

    title: str
    top: str
    """Value at the upper edge; the lower one is 0."""
    end: str
    """Time at the right edge; the left one is 0."""
    lines: tuple[Line, ...] = ()
    bands: tuple[Band, ...] = ()


def phase_bars(spans: Sequence[PhaseSpan]) -> tuple[Bar, ...]:
    """Return the phases from left to right."""
    if not spans:
        return ()
    start, end = min(one.start for one in spans), max(one.end for one in spans)
    scale = WIDTH / max(end - start, 1e-9)
    return tuple(
        Bar(
            round((one.start - start) * scale, 2),
            round(max(_BAR_MIN, one.seconds * scale), 2),
            one.phase,
            f"{one.title}{f', restart {one.attempt}' if one.attempt else ''}: {duration(one.seconds)}",
        )
        for one in spans
    )


def rate_chart(history: History) -> Chart | None:
    """Return the throughput of each node: its samples a second, else its steps a second; None without
    either."""
    rates = _series(history, "metric:samples_per_s")
    title = "samples/s by node (mean of its ranks that print them)"
    if not rates:
        steps = _series(history, "metric:step")
        rates = {node: _slope(values, history["interval_s"]) for node, values in steps.items()}
        title = "steps/s by node"
    rates = {node: values for node, values in rates.items() if any(one is not None for one in values)}
    if not rates:
        return None
    stride = math.ceil(sum(len(values) for values in rates.values()) / _POINTS)
    rates = {node: values[::stride] for node, values in rates.items()}
    top = axis_top(max(one for values in rates.values() for one in values if one is not None))
    lines = tuple(
        Line(node, number % _COLOURS, tuple(_pieces(values, top)))
        for number, (node, values) in enumerate(sorted(rates.items()))
    )
    return Chart(title, f"{top:g}", _end(history), lines)


def band_charts(history: History) -> tuple[Chart, ...]:
    """Return a chart of each figure that nodes have: the least, the median and the most of all nodes."""
    charts = []
    for name, title, limit, unit in (
        ("gpu", "GPU utilisation", 1.0, "%"),
        ("cpu", "processors", 1.0, "%"),
        ("memory", "memory", None, "B"),
        ("infiniband", "InfiniBand, both ways", None, "B/s"),
        ("network", "network, both ways", None, "B/s"),
        ("power", "power of the GPUs", None, "W"),
    ):
        found = list(_series(history, name).values())
        columns = [[one for one in column if one is not None] for column in zip(*found, strict=False)]
        highest = max((max(column) for column in columns if column), default=None)
        if highest is None:
            continue
        top = limit or axis_top(highest)
        charts.append(Chart(title, _amount(top, unit), _end(history), bands=tuple(_bands(columns, top))))
    return tuple(charts)


def _series(history: History, name: str) -> dict[str, Series]:
    return {node: series[name] for node, series in history["nodes"].items() if series.get(name)}


def _end(history: History) -> str:
    lengths = [len(values) for series in history["nodes"].values() for values in series.values()]
    return duration(max(lengths, default=0) * history["interval_s"])


def _slope(values: Series, interval_s: float) -> Series:
    """Return the growth a second, spread over the intervals between two values; None before the first, after
    the last, and where a restart counts from an earlier step.

    >>> _slope([1.0, None, 5.0, 2.0, 3.0, None], 2.0)
    [None, 1.0, 1.0, None, 0.5, None]
    """
    slopes: list[float | None] = [None] * len(values)
    before: tuple[int, float] | None = None
    for place, value in enumerate(values):
        if value is None:
            continue
        if before is not None and value >= before[1]:
            begun, was = before
            growth = (value - was) / ((place - begun) * interval_s)
            slopes[begun + 1 : place + 1] = [growth] * (place - begun)
        before = place, value
    return slopes


def _pieces(values: Series, top: float) -> list[Coordinates]:
    """Return the points of each run of values that are there; a value between two gaps is a dash."""
    runs, run = list[list[tuple[float, float]]](), list[tuple[float, float]]()
    step = WIDTH / max(1, len(values) - 1)
    for number, value in enumerate([*values, None]):
        if value is not None:
            run.append((number * step, value))
        elif run:
            runs.append(run if len(run) > 1 else [run[0], (run[0][0] + step / 2, run[0][1])])
            run = []
    return [_points(one, top) for one in runs]


def _bands(columns: Sequence[Sequence[float]], top: float) -> list[Band]:
    step = WIDTH / max(1, len(columns) - 1)
    found, run = list[Band](), list[tuple[float, Sequence[float]]]()
    for number, column in enumerate([*columns, ()]):
        if column:
            run.append((number * step, column))
            continue
        if len(run) > 1:
            most = [(x, max(values)) for x, values in run]
            least = [(x, min(values)) for x, values in reversed(run)]
            middle = [(x, median(values)) for x, values in run]
            found.append(Band(_points(most + least, top), _points(middle, top)))
        run = []
    return found


def _points(points: Sequence[tuple[float, float]], top: float) -> Coordinates:
    return Coordinates(
        " ".join(f"{x:.0f},{HEIGHT * (1 - max(0.0, min(value, top)) / top):.1f}" for x, value in points)
    )


def _amount(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.0f} %"
    return f"{value:g} W" if unit == "W" else size(value) + unit.removeprefix("B")
