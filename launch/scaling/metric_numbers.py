"""The figures that a run's ranks print, and the throughput of the whole job by them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Literal

from launch.numbers import counted
from launch.remote.lines.known_lines import LONGEST, read_line
from launch.remote.lines.line_patterns import MOST_FORMS, SHOWN, line_form, number_text, plain_text

__all__ = [
    "NO_FIGURE",
    "THROUGHPUT",
    "Basis",
    "Figures",
    "MetricReader",
    "NoThroughput",
    "SourceLine",
    "source_lines",
    "throughput",
]

THROUGHPUT = "samples_per_s"
"""The one metric that is known of common frameworks' lines and is higher for faster."""

Basis = Literal["rank", "job"]
"""Whose figure a line prints: its rank's, or that of the job."""

_MOST_FIGURES = 10_000
"""Figures of one rank that are kept; a rank that prints ten a second prints them for a quarter of an hour."""
_LONGEST_LINE = 4096
"""Bytes of a line that a pattern is searched in."""
NO_FIGURE = "no rank printed a figure; try the pattern with `fab logs JOB --grep`"
_OF_ONE = re.compile(r"(?:\bper |/)(?:GPU|CPU|rank|worker|device|replica|process)\b", re.IGNORECASE)
"""What stands beside the figure of one rank: Horovod's benchmark prints ``Iter #0: 331.2 img/sec per GPU``
on rank 0 alone (horovod/horovod: examples/pytorch/pytorch_synthetic_benchmark.py)."""


class NoThroughput(ValueError):
    """A run's figures do not give the job's throughput; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line that a figure was read from."""

    figure: float
    line: str
    count: int
    """How many lines of this form there were."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run printed."""

    ranks: int
    """Number of ranks of the job."""
    by_rank: Mapping[int, Sequence[float]]
    """By rank, its figures as they came."""
    of_one: int
    """How many of the lines name a single GPU, rank or worker."""
    left_out: int = 0
    """Figures that came after the first 10 000 of their rank."""
    is_total: bool = False
    """Whether each line says that its figure is of all ranks."""
    sources: Sequence[SourceLine] = ()
    """The first line of each form."""

    @property
    def lines(self) -> int:
        """Number of figures kept."""
        return sum(map(len, self.by_rank.values()))


@dataclass(slots=True)
class _Lines:
    """The figures of one kind."""

    by_rank: dict[int, list[float]] = field(default_factory=dict)
    of_one: int = 0
    left_out: int = 0
    sources: dict[str, SourceLine] = field(default_factory=dict)

    def add(self, rank: int, value: float, text: str, *, of_one: bool) -> None:
        kept = self.by_rank.setdefault(rank, [])
        if len(kept) >= _MOST_FIGURES:
            self.left_out += 1
            return
        kept.append(value)
        self.of_one += of_one
        form = line_form(text)
        known = self.sources.get(form)
        if known is not None:
            self.sources[form] = replace(known, count=known.count + 1)
        elif len(self.sources) < MOST_FORMS:
            self.sources[form] = SourceLine(value, text.strip()[:SHOWN], 1)


@dataclass(slots=True)
class MetricReader:
    """Finds a metric's figures in the lines of a job's ranks; bounded in memory, whatever they print."""

    pattern: re.Pattern[str] | None
    """None for the throughput that common frameworks print."""
    _rank: _Lines = field(default_factory=_Lines)
    """Lines of common frameworks that say that their figure is of one rank."""
    _lines: _Lines = field(default_factory=_Lines)
    _totals: _Lines = field(default_factory=_Lines)
    """Lines of common frameworks that say that their figure is of all ranks."""

    def feed(self, rank: int, line: bytes) -> float | None:
        """Return the figure in a rank's line, None where there is none that is finite and above 0."""
        text, number, of = self._search(line) if self.pattern else _read(line)
        value = float(number_text(number) or "nan")
        if not value > 0:
            return None
        lines = self._totals if of == "job" else self._rank if of and not self.pattern else self._lines
        lines.add(rank, value, text, of_one=of == "rank")
        return value

    def _search(self, line: bytes) -> tuple[str, str, str]:
        """Return a line, its figure and whose that is; the figure is empty where there is none."""
        assert self.pattern is not None  # noqa: S101
        text = plain_text(line[:_LONGEST_LINE])
        found = self.pattern.search(text)
        # Of alternatives, each with one group, the one that matched.
        if found is None or not found.lastindex:
            return text, "", ""
        if len(line) > _LONGEST_LINE and found.end(found.lastindex) == len(text):
            return text, "", ""  # its end may be missing
        return text, found[found.lastindex], "rank" if _OF_ONE.search(text) else ""

    def figures(self, ranks: int) -> Figures:
        """Return what the job's ``ranks`` have printed: figures of one rank each; else those that do not say
        whose they are; else totals."""
        lines = next((one for one in (self._rank, self._lines) if one.by_rank), self._totals)
        by_rank = {rank: tuple(lines.by_rank[rank]) for rank in sorted(lines.by_rank)}
        sources = tuple(lines.sources.values())
        return Figures(
            ranks, by_rank, lines.of_one, lines.left_out, is_total=lines is self._totals, sources=sources
        )


def _read(line: bytes) -> tuple[str, str, str]:
    text = plain_text(line[: 4 * LONGEST + 4])
    found = read_line(text).get(THROUGHPUT)
    return (text, "", "") if found is None else (text, *found)


def source_lines(runs: Iterable[Figures]) -> list[SourceLine]:
    """Return the first line of each form that the figures of all runs were read from.

    >>> one, other = (Figures(1, {}, 0, sources=(SourceLine(n, f"at {n} samples/s", 3),)) for n in (5.0, 7.0))
    >>> source_lines([one, other])
    [SourceLine(figure=5.0, line='at 5.0 samples/s', count=6)]
    """
    found: dict[str, SourceLine] = {}
    for source in (source for figures in runs for source in figures.sources):
        form = line_form(source.line)
        known = found.get(form)
        found[form] = source if known is None else replace(known, count=known.count + source.count)
    return list(found.values())


def throughput(figures: Figures, warm_up: int, basis: Basis | None) -> float:
    """Return the job's throughput: of each rank's figures after the warm-up the median, put together.

    Figures of single ranks are added up; where only some ranks print theirs, the mean of these counts for
    the others too. A figure of the job counts as it is printed; where several ranks print it, their mean.
    Without ``basis`` the figures are the job's if the lines say ``total`` or the like. They are those of
    ranks if the lines say ``per GPU`` or the like, or if every rank prints some.

    >>> each = Figures(4, {0: (50.0, 100.0, 102.0, 98.0)}, of_one=4)
    >>> throughput(each, 1, None), throughput(each, 1, "job")
    (400.0, 100.0)

    Raises :class:`NoThroughput` where there are no figures after the warm-up, or the basis is open.
    """
    if not figures.by_rank:
        raise NoThroughput(NO_FIGURE)
    medians = [median(values[warm_up:]) for values in figures.by_rank.values() if len(values) > warm_up]
    if not medians:
        most = max(map(len, figures.by_rank.values()))
        raise NoThroughput(
            f"no rank printed more than {counted(most, 'figure')}, and the first {warm_up} are warm-up; let "
            "the job run longer, or give a smaller --warm-up"
        )
    if basis is None:
        basis = _basis_of(figures)
    return fmean(medians) * (figures.ranks if basis == "rank" else 1)


def _basis_of(figures: Figures) -> Basis:
    printing = len(figures.by_rank)
    if figures.is_total:
        return "job"
    if figures.of_one == figures.lines or (printing == figures.ranks and not figures.of_one):
        return "rank"
    if figures.of_one:
        raise NoThroughput(
            f"{figures.of_one} of {figures.lines} lines are of one rank, the others do not say; give a "
            "--metric that only finds one kind"
        )
    raise NoThroughput(
        f"{printing} of {figures.ranks} ranks printed figures: is each its rank's, or the job's? "
        "give --of rank or --of job"
    )
