"""What a report is made of: a job's records, what was sampled of it, and what follows from both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from launch.client.query import JobReport
from launch.remote.sample.sample_records import History
from launch.report.goodput import Goodput, measure_goodput
from launch.report.timeline import PhaseSpan, timeline

__all__ = ["JobFacts", "NodeFigures", "Part", "collect_facts", "mean", "parts_of", "read_lines", "usual"]


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """Means of a node's series; None for what was not sampled."""

    node: str
    gpu: float | None
    """Part of the time in which its GPUs computed: 0 to 1."""
    cpu: float | None
    memory: float | None
    network: float | None
    infiniband: float | None
    power: float | None
    rate: float | None
    """Samples a second, mean of its ranks that print them."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as its report shows it."""

    report: JobReport
    spans: tuple[PhaseSpan, ...]
    history: History | None
    goodput: Goodput | None
    unknown: str
    """Why goodput is unknown; empty where it is known."""
    nodes: tuple[NodeFigures, ...]
    """Of the nodes that were sampled, by name."""
    flags: tuple[str, ...]
    now: float
    """Unix seconds by the head's clock."""

    @property
    def total_s(self) -> float:
        """Duration from the first phase to the last; 0 without phases."""
        if not self.spans:
            return 0.0
        return max(span.end for span in self.spans) - min(span.start for span in self.spans)

    def seconds_in(self, *phases: str) -> float:
        """Return the time in these phases, of all launches."""
        return sum(span.seconds for span in self.spans if span.phase in phases)


def collect_facts(report: JobReport, history: History | None, flags: Iterable[str], now: float) -> JobFacts:
    """Return the facts of a job; ``history`` is None where nothing was sampled."""
    spans = timeline(report.state, report.events, now)
    measured = measure_goodput(spans, history)
    return JobFacts(
        report=report,
        spans=spans,
        history=history,
        goodput=None if isinstance(measured, str) else measured,
        unknown=measured if isinstance(measured, str) else "",
        nodes=() if history is None else tuple(_figures(history)),
        flags=tuple(flags),
        now=now,
    )


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are there; None without any.

    >>> mean([1.0, None, 3.0]), mean([None])
    (2.0, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _figures(history: History) -> Iterable[NodeFigures]:
    for node, series in sorted(history["nodes"].items()):
        names = ("gpu", "cpu", "memory", "network", "infiniband", "power", "metric:samples_per_s")
        yield NodeFigures(node, *(mean(series.get(name, ())) for name in names))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a job's time."""

    name: str
    seconds: float


def parts_of(facts: JobFacts) -> tuple[Part, ...]:
    """Return what the job's time went to, in order; parts of 50 ms and less are left out."""
    goodput, parts = facts.goodput, list[Part]()
    for phase in dict.fromkeys(span.phase for span in facts.spans):
        spans = [span for span in facts.spans if span.phase == phase]
        seconds = sum(span.seconds for span in spans)
        if phase != "run" or goodput is None:
            parts.append(Part(spans[0].title, seconds))
            continue
        known = (
            Part("ranks run, to their first step", goodput.before_steps_s),
            Part("steps that were kept", goodput.kept_s),
            Part("steps that were lost", goodput.lost_s),
            Part("checkpoints", goodput.checkpoint_s),
        )
        rest = seconds - sum(part.seconds for part in known)
        parts += [*known, Part("ranks run, after their last step", max(0.0, rest))]
    return tuple(part for part in parts if part.seconds > 0.05)  # noqa: PLR2004  the docstring's


def read_lines(facts: JobFacts) -> tuple[tuple[str, str, str], ...]:
    """Return a metric with its number, whose line it was read from, and that line; a few for each metric."""
    lines = () if facts.history is None else facts.history.get("lines", ())
    return tuple(
        (f"{one['metric']} {one['value']:g}", f"rank {one['rank']} on {one['node']}", one["line"])
        for one in sorted(lines, key=lambda line: line["metric"])
    )


def usual(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are there; None without any."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
