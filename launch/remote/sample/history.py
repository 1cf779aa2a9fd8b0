"""A job's course: means of its nodes' figures by interval, and the steps of each launch."""

from __future__ import annotations

import json

from launch.remote.lines.line_patterns import MOST_FORMS, line_form
from launch.remote.sample.live_samples import MOST_METRICS, finite
from launch.remote.sample.step_count import StepCount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from launch.remote.sample.sample_records import (
        AttemptSteps,
        History,
        MetricLine,
        NodeSample,
        RankSample,
        Sample,
    )

__all__ = ["INTERVALS", "INTERVAL_S", "HistoryRecorder"]

INTERVALS = 240
"""Most intervals."""
INTERVAL_S = 2.0
"""First length of an interval."""
_VALUES = 500_000
"""Values that all series hold together at most: some 5 MB. Of many nodes there are fewer intervals."""
_FEWEST = 16
_SERIES = 24
"""Series of a node at most; metrics that come later have none."""
_ATTEMPTS = 1000
"""Launches of a job at most; the oldest are left out."""
_NULL = "null"


class _Series:
    """One figure of a node: its closed intervals as the items of a JSON list, and the sum of the open one."""

    def __init__(self, values: list[float | None]) -> None:
        self.text = ",".join(map(_as_text, values))
        self.sum, self.count = 0.0, 0

    def add(self, value: float) -> None:
        """Add a value to the open interval."""
        self.sum += value
        self.count += 1

    def close(self) -> None:
        """Close the open interval."""
        value = _as_text(self.sum / self.count if self.count else None)
        self.text = f"{self.text},{value}" if self.text else value
        self.sum, self.count = 0.0, 0

    def halve(self) -> None:
        """Make one interval of each two."""
        values = [None if text == _NULL else float(text) for text in self.text.split(",")]
        pairs = zip(values[::2], values[1::2])  # noqa: B905  (Python 3.8 has no strict)
        self.text = ",".join(
            _as_text(_mean([value for value in pair if value is not None])) for pair in pairs
        )


def _as_text(value: float | None) -> str:
    """Return a value with four digits, as JSON.

    >>> _as_text(0.123456), _as_text(1e11), _as_text(None), _as_text(1e308 + 1e308)
    ('0.1235', '1e+11', 'null', 'null')
    """
    return _NULL if value is None or value - value != 0 else f"{value:.4g}"


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


class HistoryRecorder:
    """Recorder of a job's course from ``now``, in Unix seconds; or from where its launches ``before`` left
    it. Raise LookupError, TypeError or ValueError for another thing than a course."""

    def __init__(self, attempt: int, now: float, before: History | None = None) -> None:
        self._start, self._interval = now, INTERVAL_S
        self._closed = 0
        self._nodes: dict[str, dict[str, _Series]] = {}
        self._attempts: list[AttemptSteps] = []
        self._checkpoints: dict[int, tuple[int, float]] = {}
        self._lines: dict[str, dict[str, MetricLine]] = {}
        """By metric and form."""
        if before is not None:
            self._go_on(before)
        self._steps: AttemptSteps = {
            "attempt": attempt,
            "started": now,
            "ended": None,
            "first_step": None,
            "first_step_at": None,
            "last_step": None,
            "last_step_at": None,
            "has_epochs": False,
            "epoch_steps": None,
            "first_epoch": None,
            "last_epoch": None,
            "checkpoints": 0,
            "checkpoint_s": 0.0,
        }
        self._step_count = StepCount(self._steps)
        self._attempts = [*self._attempts, self._steps][-_ATTEMPTS:]

    def _go_on(self, before: History) -> None:
        self._start, self._interval = before["start"], before["interval_s"]
        self._attempts = list(before["attempts"])
        for line in before.get("lines", []):
            self._add_line(line)
        lengths = {len(values) for its in before["nodes"].values() for values in its.values()}
        if len(lengths) > 1 or not self._interval > 0:
            raise ValueError("series of several lengths")
        self._closed = max(lengths, default=0)
        for node, its in before["nodes"].items():
            self._nodes[node] = {name: _Series(values) for name, values in its.items()}

    def add(self, node: str, sample: Sample, now: float) -> None:
        """Add a node's sample that came at ``now``."""
        self._advance(now)
        for one in sample["node"]:
            for name, value in _figures(one):
                self._series(node, name).add(value)
        for rank in sample["ranks"]:
            self._add_metrics(node, rank, now)

    def _add_metrics(self, node: str, rank: RankSample, now: float) -> None:
        numbers = {name: finite(text) for name, text in rank["metrics"].items()}
        series = self._nodes.get(node, {})
        for name, number in numbers.items():
            if number is not None and (f"metric:{name}" in series or len(series) < _SERIES):
                self._series(node, f"metric:{name}").add(number)
        for name, line in rank["lines"].items():
            value = numbers.get(name)
            if value is not None:
                self._add_line(
                    {"metric": name, "value": value, "node": node, "rank": rank["rank"], "line": line}
                )
        step, seconds = numbers.get("step"), numbers.get("checkpoint_s")
        if step is not None:
            self._step_count.add(rank["rank"], step, numbers.get("epoch"), now)
        if seconds is not None:
            self._add_checkpoint(rank["rank"], seconds)

    def _add_line(self, line: MetricLine) -> None:
        if line["metric"] in self._lines or len(self._lines) < MOST_METRICS:
            forms = self._lines.setdefault(line["metric"], {})
            if len(forms) < MOST_FORMS:
                forms.setdefault(line_form(line["line"]), line)

    def _add_checkpoint(self, rank: int, seconds: float) -> None:
        count, before = self._checkpoints.get(rank, (0, 0.0))
        self._checkpoints[rank] = count + 1, before + seconds
        count, all_seconds = self._checkpoints[min(self._checkpoints)]
        self._steps["checkpoints"], self._steps["checkpoint_s"] = count, round(all_seconds, 3)

    def _series(self, node: str, name: str) -> _Series:
        its = self._nodes.setdefault(node, {})
        if name not in its:
            its[name] = _Series([None] * self._closed)
        return its[name]

    def _all_series(self) -> list[_Series]:
        return [series for its in self._nodes.values() for series in its.values()]

    def _advance(self, now: float) -> None:
        """Close the intervals that are over."""
        while now >= self._start + (self._closed + 1) * self._interval:
            self._close_interval()

    def _close_interval(self) -> None:
        every = self._all_series()
        for series in every:
            series.close()
        self._closed += 1
        most = max(_FEWEST, min(INTERVALS, _VALUES // max(1, len(every))))
        while self._closed > most:
            if self._closed % 2:  # the last one waits for its pair
                for series in every:
                    series.close()
                self._closed += 1
            for series in every:
                series.halve()
            self._closed //= 2
            self._interval *= 2

    def end(self, now: float) -> None:
        """Close the launch, and the open interval."""
        self._advance(now)
        if any(series.count for series in self._all_series()):
            self._close_interval()
        self._steps["ended"] = now

    def as_json(self) -> bytes:
        """Return the :class:`~launch.remote.sample.sample_records.History` as JSON."""
        nodes = ",".join(
            f"{json.dumps(node)}:{{"
            + ",".join(f"{json.dumps(name)}:[{series.text}]" for name, series in its.items())
            + "}"
            for node, its in self._nodes.items()
        )
        lines = json.dumps([line for forms in self._lines.values() for line in forms.values()])
        head = f'"start":{self._start!r},"interval_s":{self._interval!r}'
        return (
            f'{{{head},"nodes":{{{nodes}}},"attempts":{json.dumps(self._attempts)},"lines":{lines}}}'.encode()
        )


def _figures(sample: NodeSample) -> Iterator[tuple[str, float]]:
    """Yield the figures of a node that have a series; what is not there has none."""
    yield "cpu", sample["cpu_permille"] / 1000
    yield "memory", sample["memory_used"]
    yield "network", sample["net_rx"] + sample["net_tx"]
    if sample["ib_rx"] >= 0 and sample["ib_tx"] >= 0:
        yield "infiniband", sample["ib_rx"] + sample["ib_tx"]
    used = [gpu["utilisation"] for gpu in sample["gpus"] if gpu["utilisation"] >= 0]
    if used:
        yield "gpu", sum(used) / len(used) / 100
    watts = [gpu["power_mw"] for gpu in sample["gpus"] if gpu["power_mw"] >= 0]
    if watts:
        yield "power", sum(watts) / 1000
