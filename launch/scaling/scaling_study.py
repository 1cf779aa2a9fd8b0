"""A measurement as it is kept: scaling.json, replaced after each run, from which ``--resume`` continues."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from launch.errors import InputError
from launch.scaling.metric_numbers import Figures, NoThroughput, SourceLine, throughput
from launch.scaling.point_transport import Transport
from launch.scaling.scaling_plan import Run, ScalingPlan

__all__ = ["FailedRun", "MeasuredRun", "Study", "Subject", "continued", "read_study", "study_record"]

VERSION = 2
_T = TypeVar("_T")
_FILE = "scaling.json"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured, and where."""

    job_file: str
    """Path as it was given."""
    name: str
    fingerprint: str
    """Hash of the job file, what was set in it, and the code."""
    stack: str
    size: str
    rehearsed: bool
    nodes: tuple[str, ...]
    """Names of the most nodes; a run has the first of them."""
    benchmark: str = ""
    """The job file's tag ``benchmark``."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run whose job has succeeded."""

    run: Run
    job: str
    started: float
    """Unix seconds by this machine's clock."""
    seconds: float
    figures: Figures
    transport: Transport


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that gave no throughput; the next measurement in the folder repeats it."""

    run: Run
    job: str
    """Empty where there was none yet."""
    reason: str


@dataclass(frozen=True, slots=True)
class Study:
    """A measurement, as far as it has come."""

    plan: ScalingPlan
    subject: Subject
    runs: tuple[MeasuredRun, ...] = ()
    failures: tuple[FailedRun, ...] = ()

    @property
    def done(self) -> frozenset[Run]:
        """The runs that need not be repeated."""
        return frozenset(one.run for one in self.runs)

    def with_run(self, measured: MeasuredRun) -> Study:
        """Return the measurement with one run more; earlier failures of that run count no longer."""
        failures = tuple(one for one in self.failures if one.run != measured.run)
        return replace(self, runs=(*self.runs, measured), failures=failures)

    def with_failure(self, failed: FailedRun) -> Study:
        """Return the measurement with a failed run."""
        failures = tuple(one for one in self.failures if one.run != failed.run)
        return replace(self, failures=(*failures, failed))

    def samples(self) -> dict[int, list[float]]:
        """Return the throughput of each repeat by number of nodes.

        Raises :class:`~launch.scaling.metric_numbers.NoThroughput` naming the job whose figures give none.
        """
        found: dict[int, list[float]] = {nodes: [] for nodes in self.plan.counts}
        for one in sorted(self.runs, key=lambda measured: measured.run):
            if one.run.nodes not in found or one.run.repeat >= self.plan.repeats:
                continue
            try:
                value = throughput(one.figures, self.plan.warm_up, self.plan.basis)
            except NoThroughput as error:
                raise NoThroughput(f"job {one.job}, {one.run.words}: {error}") from None
            found[one.run.nodes].append(value)
        return found


def study_record(study: Study) -> dict[str, Any]:
    """Return the measurement as JSON's own types."""
    return {"version": VERSION, **asdict(study)}


def read_study(text: str) -> Study:
    """Return the measurement in a scaling.json.

    Raises :class:`~launch.errors.InputError` for anything that :func:`study_record` does not write.
    """
    try:
        record = json.loads(text)
        version = record["version"]
        if version == VERSION:
            return _study(record)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        problem = f"is not a measurement of fab scaling: {type(error).__name__} {error}"
        raise InputError(_FILE, None, problem, "remove it, or take another --output") from None
    raise InputError(_FILE, version, f"is not of version {VERSION}", "take another --output")


def continued(study: Study, plan: ScalingPlan, subject: Subject) -> Study:
    """Return an earlier measurement with the plan of one that continues it.

    More repeats, other numbers of nodes, another mode, warm-up or basis continue it: its figures are kept as
    they were printed. Raises :class:`~launch.errors.InputError` where they would be another job's.
    """
    shared = min(len(subject.nodes), len(study.subject.nodes))
    differences = [
        (name, getattr(study.subject, name), getattr(subject, name))
        for name in ("stack", "size", "rehearsed", "fingerprint")
    ]
    differences += [
        ("metric", study.plan.pattern or study.plan.metric, plan.pattern or plan.metric),
        ("nodes", study.subject.nodes[:shared], subject.nodes[:shared]),
    ]
    for name, before, now in differences:
        if before != now:
            what = "job file, code or options" if name == "fingerprint" else name
            problem = f"continues a measurement with another {what}"
            shown = None if name == "fingerprint" else f"{now}, earlier {before}"
            raise InputError("--resume", shown, problem, "take another --output, without --resume")
    return replace(study, plan=plan, subject=subject)


def _study(record: Mapping[str, Any]) -> Study:
    plan = _record(ScalingPlan, record["plan"], counts=tuple(map(_count, record["plan"]["counts"])))
    subject = _record(Subject, record["subject"], nodes=tuple(map(str, record["subject"]["nodes"])))
    failures = tuple(_record(FailedRun, one, run=_run(one["run"])) for one in record["failures"])
    return Study(plan, subject, tuple(map(_measured, record["runs"])), failures)


def _measured(one: Mapping[str, Any]) -> MeasuredRun:
    figures = one["figures"]
    by_rank = {int(rank): tuple(map(_figure, values)) for rank, values in figures["by_rank"].items()}
    sources = tuple(
        _record(SourceLine, source, figure=_figure(source["figure"])) for source in figures["sources"]
    )
    return _record(
        MeasuredRun,
        one,
        run=_run(one["run"]),
        figures=_record(Figures, figures, by_rank=by_rank, sources=sources),
        transport=_record(Transport, one["transport"]),
    )


def _run(one: Mapping[str, Any]) -> Run:
    return Run(_whole(one["repeat"]), _count(one["nodes"]))


def _record(kind: type[_T], values: Mapping[str, Any], **read: Any) -> _T:
    """Return a dataclass of the values, whose types must be its fields'; ``read`` has those read already."""
    given = {}
    for one in fields(kind):  # type: ignore[arg-type]
        value = read[one.name] if one.name in read else values[one.name]
        if one.name not in read and not _is_of(str(one.type), value):
            raise TypeError(f"{one.name} is {value!r:.40}")
        given[one.name] = value
    return kind(**given)


def _is_of(kind: str, value: object) -> bool:
    if value is None:
        return "None" in kind
    if isinstance(value, bool):
        return kind == "bool"
    if kind == "int":
        return isinstance(value, int) and value >= 0
    if kind == "float":
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, str) and kind != "bool"


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r:.40} is not a number of 0 or more")
    return value


def _count(value: object) -> int:
    if _whole(value) == 0:
        raise ValueError("0 nodes")
    return _whole(value)


def _figure(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise TypeError(f"{value!r:.40} is not a figure above 0")
    return float(value)
