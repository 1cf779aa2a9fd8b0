"""A measurement as rows for people, CSV for spreadsheets and records for programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from launch.numbers import counted
from launch.printable import for_terminal
from launch.scaling.metric_numbers import source_lines, throughput
from launch.scaling.scaling_points import Point
from launch.scaling.scaling_study import Study, study_record
from launch.scaling.scaling_verdict import Analysis, percent
from launch.scaling.serial_fraction import karp_flatt

__all__ = ["columns", "csv_text", "result_record", "rows", "sources"]

_CSV = (
    *("nodes", "ranks", "repeat", "job", "figures", "throughput", "median", "efficiency", "transport"),
    "seconds",
)

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", re.IGNORECASE)


def columns(study: Study) -> tuple[str, ...]:
    """Return the names of a table's columns, in their order."""
    last = ("serial fraction",) if study.plan.mode == "strong" else ("time lost",)
    return ("nodes", "ranks", "runs", study.plan.metric, "spread", "of linear", *last, "transport")


def rows(study: Study, analysis: Analysis) -> list[tuple[str, ...]]:
    """Return a row for each point; what is not known, or not decided, is ``-``."""
    return [
        (
            str(point.nodes),
            str(ranks),
            str(len(point.values)),
            f"{point.median:.4g}",
            "-" if len(point.values) == 1 else percent(point.spread),
            percent(point.efficiency),
            _last(study, point, analysis.points),
            transport,
        )
        for point, ranks, transport in zip(analysis.points, analysis.ranks, analysis.transports, strict=True)
    ]


def _last(study: Study, point: Point, points: Sequence[Point]) -> str:
    if study.plan.mode == "strong":
        found = karp_flatt(point, points[0])
        return "-" if found is None else percent(found)
    return percent(point.lost) if point.is_decided else "-"


def sources(study: Study) -> list[str]:
    """Return the lines that figures were read from, one of each form, with its figure."""
    return [
        f"{one.figure:g} in {counted(one.count, 'line')} like: {for_terminal(one.line, lines=False)}"
        for one in source_lines(run.figures for run in study.runs)
    ]


def csv_text(study: Study, analysis: Analysis) -> str:
    """Return a line for each run that is measured, as RFC 4180 has it, without cells that are formulas."""
    points = {point.nodes: point for point in analysis.points}
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_CSV)
    for one in sorted(study.runs, key=lambda measured: (measured.run.nodes, measured.run.repeat)):
        point = points.get(one.run.nodes)
        if point is None:
            continue
        value = throughput(one.figures, study.plan.warm_up, study.plan.basis)
        cells = (
            *(one.run.nodes, one.figures.ranks, one.run.repeat + 1, one.job, one.figures.lines, value),
            *(point.median, f"{point.efficiency:.6f}", one.transport.words, f"{one.seconds:.1f}"),
        )
        writer.writerow(_no_formula(str(cell)) for cell in cells)
    return text.getvalue()


def _no_formula(cell: str) -> str:
    """Return a cell after an apostrophe where spreadsheets would take it for a formula: a node wrote some
    (https://owasp.org/www-community/attacks/CSV_Injection).

    >>> [_no_formula(cell) for cell in ("=1+1", "@a", "-x", "-1.5e-3", "+2", "RDMA", "")]
    ["'=1+1", "'@a", "'-x", '-1.5e-3', '+2', 'RDMA', '']
    """
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell


def result_record(study: Study, analysis: Analysis) -> dict[str, Any]:
    """Return the measurement with its points and verdict, as JSON's own types."""
    points = [
        {
            **asdict(point),
            "ranks": ranks,
            "spread": point.spread,
            "lost": point.lost,
            "serial_fraction": karp_flatt(point, analysis.points[0]),
            "transport": transport,
        }
        for point, ranks, transport in zip(analysis.points, analysis.ranks, analysis.transports, strict=True)
    ]
    serial = None if analysis.serial is None else asdict(analysis.serial)
    return {
        **study_record(study),
        "points": points,
        "serial_fraction": serial,
        "verdict": list(analysis.sentences),
    }
