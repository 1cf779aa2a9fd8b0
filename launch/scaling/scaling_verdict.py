"""What a measurement says, in sentences, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from launch.numbers import counted
from launch.scaling.metric_numbers import NoThroughput
from launch.scaling.point_transport import NOT_PROBED
from launch.scaling.scaling_points import Point, make_points
from launch.scaling.scaling_study import Study
from launch.scaling.serial_fraction import SerialFraction, fit_serial_fraction, karp_flatt

__all__ = ["NOT_AZURE", "Analysis", "analyse", "percent"]

_TOO_GOOD = 1.2
"""Part of linear growth above which figures that were taken for those of ranks may be the job's."""
NOT_AZURE = "rehearsed nodes on one machine: says nothing of Azure"


@dataclass(frozen=True, slots=True)
class Analysis:
    """A measurement's points and verdict."""

    points: tuple[Point, ...]
    ranks: tuple[int, ...]
    """Of each point."""
    transports: tuple[str, ...]
    """Of each point, in words."""
    serial: SerialFraction | None
    """None for weak scaling, and where it has no error."""
    sentences: tuple[str, ...]


def analyse(study: Study) -> Analysis:
    """Return what the measurement says, as far as it has come."""
    try:
        points = make_points(study.samples())
    except NoThroughput as error:
        return Analysis((), (), (), None, (f"no verdict: {error}",))
    by_nodes = {point.nodes: [one for one in study.runs if one.run.nodes == point.nodes] for point in points}
    transports = {
        nodes: list(dict.fromkeys(one.transport.words for one in runs)) for nodes, runs in by_nodes.items()
    }
    serial = fit_serial_fraction(points) if study.plan.mode == "strong" else None
    doubts = [*_mixed(study), *_doubtful_basis(study, points)]
    sentences = [*_incomplete(study, points), *(doubts or _sentences(study, points, serial))]
    if study.subject.rehearsed:
        sentences.append(NOT_AZURE)
    return Analysis(
        tuple(points),
        tuple(by_nodes[point.nodes][0].figures.ranks for point in points),
        tuple(_transport(transports[point.nodes]) for point in points),
        serial,
        tuple(sentences),
    )


def percent(part: float) -> str:
    """Return a part as text.

    >>> percent(0.9116), percent(-0.0004)
    ('91.2 %', '0.0 %')
    """
    return f"{100 * part:.1f} %".replace("-0.0 %", "0.0 %")


def _incomplete(study: Study, points: Sequence[Point]) -> list[str]:
    there = sum(len(point.values) for point in points)
    planned = len(study.plan.counts) * study.plan.repeats
    failed = [f"{one.run.words} failed ({one.job or 'no job'}): {one.reason}" for one in study.failures]
    if there < planned:
        failed.insert(0, f"{there} of {planned} runs are measured; --resume continues")
    return failed


def _transport(words: Sequence[str]) -> str:
    """Return what is known of a point's runs: the first of them alone is probed."""
    return "; ".join([one for one in words if one != NOT_PROBED] or words)


def _mixed(study: Study) -> list[str]:
    """Return why points that do not share a transport cannot be compared; nothing where they do."""
    names = {
        one.transport.name or ("InfiniBand not proven" if one.transport.verdict == "unproven" else "")
        for one in study.runs
        if one.run.nodes > 1
    }
    if len({name.partition(",")[0] for name in names}) < 2:  # noqa: PLR2004
        return []
    return [f"no verdict: the points differ in transport: {', '.join(sorted(filter(None, names)))}"]


def _doubtful_basis(study: Study, points: Sequence[Point]) -> list[str]:
    """Return why the figures may not be those of ranks, though every rank prints some; nothing where the
    lines or the user say whose they are."""
    best = max(points, key=lambda point: point.efficiency, default=None)
    if best is None or study.plan.basis is not None or best.efficiency <= _TOO_GOOD:
        return []
    if any(one.figures.of_one or one.figures.is_total for one in study.runs):
        return []
    return [
        f"no verdict: {_nodes(best)} would reach {percent(best.efficiency)} of linear if each rank printed "
        "its own figure: does it print the job's? --resume with --of job or --of rank decides it"
    ]


def _sentences(study: Study, points: Sequence[Point], serial: SerialFraction | None) -> list[str]:
    if not points:
        return []
    if len(points) == 1:
        return [f"no verdict: only {_nodes(points[0])} measured, and nothing to compare with"]
    lost_to = "communication and waiting"
    if study.plan.mode == "strong":
        lost_to = "work that is not shared, communication and waiting"
    found = [_against_linear(point, points[0], lost_to) for point in points[1:]]
    found += [
        f"{_nodes(later)} are no faster than {_nodes(earlier)}: {later.median:.4g} after {earlier.median:.4g}"
        for earlier, later in pairwise(points)
        if later.median <= earlier.median
    ]
    if study.plan.mode == "strong":
        found += _serial(points, serial)
    return found


def _against_linear(point: Point, base: Point, lost_to: str) -> str:
    efficiency = f"{percent(point.efficiency)} of linear from {_nodes(base)}"
    bounds = f"{percent(point.efficiency_low)} to {percent(point.efficiency_high)}"
    if min(len(point.values), len(base.values)) < 2:  # noqa: PLR2004
        return f"{_nodes(point)}: no verdict on {efficiency}: one run has no spread; give --repeat 3"
    if not point.is_decided:
        spread = point.efficiency_high - point.efficiency_low
        if percent(point.lost) == percent(0.0):
            return f"{_nodes(point)}: {efficiency} ({bounds}): cannot be distinguished from linear"
        return (
            f"{_nodes(point)}: no verdict on {efficiency}: the repeats spread over {percent(spread)} "
            f"({bounds}), no less than the {percent(abs(point.lost))} to linear; give a higher --repeat"
        )
    if point.lost < 0:
        return f"{_nodes(point)}: {efficiency} ({bounds}): faster than linear; what slows {_nodes(base)}?"
    lost = f"{percent(point.lost)} of the ranks' time is lost to {lost_to}"
    return f"{_nodes(point)}: {efficiency} ({bounds}): {lost}"


def _serial(points: Sequence[Point], serial: SerialFraction | None) -> list[str]:
    if serial is None:
        return ["serial fraction: no verdict: one run has no spread; give --repeat 3"]
    value = f"{percent(serial.value)} ± {percent(serial.error)}"
    if not serial.is_seen:
        return [f"serial fraction: {value} (95 %): cannot be distinguished from 0"]
    if serial.value < 0:
        return [f"serial fraction: {value} (95 %): faster than linear"]
    found = [
        f"serial fraction: {value} (95 %): at most {1 / serial.value:.3g} times as fast as "
        f"{_nodes(points[0])}, with however many nodes"
    ]
    if serial.rises:
        first, last = (karp_flatt(point, points[0]) or 0.0 for point in (points[1], points[-1]))
        found.append(
            f"the serial fraction rises from {percent(first)} at {_nodes(points[1])} to {percent(last)} at "
            f"{_nodes(points[-1])}: what is lost grows with the nodes, as communication does"
        )
    return found


def _nodes(point: Point) -> str:
    return counted(point.nodes, "node")
