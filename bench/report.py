"""What every bench leaves behind: a table to read, JSON to compare, a chart, and a verdict."""

from __future__ import annotations

import json
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Claim", "bars", "lines", "median", "save", "table"]

RESULTS = Path(__file__).parent / "results"
_CONSOLE = Console(width=110)


@dataclass(frozen=True, slots=True)
class Claim:
    """One stated figure: ``measured`` must not be above ``limit``."""

    what: str
    measured: float
    limit: float
    unit: str = "s"

    @property
    def holds(self) -> bool:
        """Whether the figure was met."""
        return self.measured <= self.limit

    def __str__(self) -> str:
        """The claim as one line of the verdict."""
        sign = "holds " if self.holds else "MISSED"
        return f"{sign}  {self.what}: {self.measured:.2f} {self.unit}, at most {self.limit:g} {self.unit}"


def median(seconds: Sequence[float]) -> float:
    """The middle run: one disturbed by something else on a shared machine does not count."""
    return statistics.median(seconds)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under their columns; floats with two digits."""
    shown = Table(*columns, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row))
    _CONSOLE.print(shown)


def save(name: str, figures: Mapping[str, Any], claims: Sequence[Claim]) -> int:
    """Writes ``results/<name>.json``, prints the verdict; the exit status is 1 when one was missed."""
    RESULTS.mkdir(exist_ok=True)
    record = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": _cores(), "kernel": platform.release(), "python": platform.python_version()},
        "figures": figures,
        "claims": [{**asdict(claim), "holds": claim.holds} for claim in claims],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    for claim in claims:
        _CONSOLE.print(str(claim), style=None if claim.holds else "bold red", highlight=False)
    sys.stdout.flush()
    return 0 if all(claim.holds for claim in claims) else 1


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def lines(
    name: str, title: str, x: Sequence[float], series: Mapping[str, Sequence[float]], axes: str
) -> None:
    """Writes ``results/<name>.svg``: one line a series over ``x``; ``axes`` is "x label, y label"."""
    from matplotlib import pyplot

    figure, plot = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for label, values in series.items():
        plot.plot(x, values, marker="o", label=label)
    x_label, _, y_label = axes.partition(", ")
    plot.set(title=title, xlabel=x_label, ylabel=y_label, ylim=(0, None))
    plot.grid(alpha=0.3)
    plot.legend()
    _write(figure, name)


def bars(name: str, title: str, groups: Mapping[str, Mapping[str, float]], y_label: str) -> None:
    """Writes ``results/<name>.svg``: a panel a group, a bar a competitor, fastest first."""
    from matplotlib import pyplot

    figure, plots = pyplot.subplots(1, len(groups), figsize=(4.5 * len(groups), 4), layout="constrained")
    for plot, (group, values) in zip([plots] if len(groups) == 1 else plots, groups.items(), strict=True):
        ordered = dict(sorted(values.items(), key=lambda pair: pair[1]))
        colours = ["tab:blue" if label.startswith("fab") else "lightgray" for label in ordered]
        drawn = plot.bar(list(ordered), list(ordered.values()), color=colours)
        plot.bar_label(drawn, fmt="%.1f")
        plot.set(title=group, ylabel=y_label)
        plot.tick_params(axis="x", rotation=40)
    figure.suptitle(title)
    _write(figure, name)


def _write(figure: Any, name: str) -> None:
    from matplotlib import pyplot, rcParams

    rcParams["svg.hashsalt"] = name  # the same figures give the same file
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)
