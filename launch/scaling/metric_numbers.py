"""The figures that a run's ranks print, and the throughput of the whole job by them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from launch.numbers import counted
from launch.remote.sample.line_patterns import number_text

__all__ = ["NO_FIGURE", "Basis", "Figures", "MetricReader", "NoThroughput", "throughput"]

Basis = Literal["rank", "job"]
"""Whose figure a line prints: its rank's, or that of the job."""

_MOST_FIGURES = 10_000
"""Figures of one rank that are kept; a rank that prints ten a second prints them for a quarter of an hour."""
_LONGEST_LINE = 4096
"""Characters of a line that are searched."""
NO_FIGURE = "no rank printed a figure; try the pattern with `fab logs JOB --grep`"
_OF_ONE = re.compile(r"(?:\bper |/)(?:GPU|CPU|rank|worker|device|replica|process)\b", re.IGNORECASE)
"""What stands beside the figure of one rank: Horovod's benchmark prints ``Iter #0: 331.2 img/sec per GPU``
on rank 0 alone (horovod/horovod: examples/pytorch/pytorch_synthetic_benchmark.py)."""


class NoThroughput(ValueError):
    """A run's figures do not give the job's throughput; the text says why and what to do."""


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

    @property
    def lines(self) -> int:
        """Number of figures kept."""
        return sum(map(len, self.by_rank.values()))


@dataclass(slots=True)
class MetricReader:
    """Finds a metric's figures in the lines of a job's ranks; bounded in memory, whatever they print."""

    pattern: re.Pattern[str]
    _by_rank: dict[int, list[float]] = field(default_factory=dict)
    _of_one: int = 0
    _left_out: int = 0

    def feed(self, rank: int, line: bytes) -> float | None:
        """Return the figure in a rank's line, None where there is none that is finite and above 0."""
        text = line[:_LONGEST_LINE].decode("utf-8", "replace")
        found = self.pattern.search(text)
        if found is None:
            return None
        # Of alternatives, each with one group, the one that matched.
        number = number_text(found[found.lastindex]) if found.lastindex else ""
        value = float(number or "nan")
        if not value > 0:
            return None
        kept = self._by_rank.setdefault(rank, [])
        if len(kept) >= _MOST_FIGURES:
            self._left_out += 1
        else:
            kept.append(value)
            self._of_one += _OF_ONE.search(text) is not None
        return value

    def figures(self, ranks: int) -> Figures:
        """Return what the job's ``ranks`` have printed."""
        by_rank = {rank: tuple(self._by_rank[rank]) for rank in sorted(self._by_rank)}
        return Figures(ranks, by_rank, self._of_one, self._left_out)


def throughput(figures: Figures, warm_up: int, basis: Basis | None) -> float:
    """Return the job's throughput: of each rank's figures after the warm-up the median, put together.

    Figures of single ranks are added up; where only some ranks print theirs, the mean of these counts for
    the others too. A figure of the job counts as it is printed; where several ranks print it, their mean.
    Without ``basis`` the figures are those of ranks if the lines say ``per GPU`` or the like, or if every
    rank prints some.

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
