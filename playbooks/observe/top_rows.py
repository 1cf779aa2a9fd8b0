"""A job's samples as rows: one a node, with its ranks; filtered and sorted as the screen wants them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.client.events import JobState
from launch.client.samples import JobSamples
from launch.remote.sample.flags import STALE_S
from launch.remote.sample.sample_records import GpuSample, History, LiveNode, LiveRank
from playbooks.observe.top_view import Sorting, View

__all__ = [
    "FIRST_METRICS",
    "NodeRow",
    "RankRow",
    "Row",
    "TopRows",
    "course",
    "in_order",
    "make_rows",
    "rows_in_view",
]

FIRST_METRICS = ("step", "loss", "samples_per_s")
"""Metrics that are shown before all others."""


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank."""

    rank: int
    cpu: float
    """1 for one busy processor; after its end 0, and the same below."""
    memory: int
    """Bytes."""
    silent_s: float
    metrics: Mapping[str, float]
    ended: bool
    is_flagged: bool


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of the job."""

    name: str
    state: str
    """``ok``, ``ended``, ``no data``, or the age of its newest sample."""
    live: LiveNode | None
    """None without a sample, and once the job has ended: what the node does since is not known."""
    ranks: tuple[RankRow, ...]
    course: tuple[float | None, ...]
    """Share of its GPUs in use, or of its processors where that is not known, in the history's intervals."""
    flags: int
    """Number of flags that name the node or one of its ranks."""

    @property
    def silent_s(self) -> float:
        """Longest silence of a rank that runs; 0 without one."""
        return max((rank.silent_s for rank in self.ranks if not rank.ended), default=0.0)


@dataclass(frozen=True, slots=True)
class TopRows:
    """All that the screen shows of one job."""

    job: JobState
    now: float
    """When it was sampled, in Unix seconds by the head's clock."""
    nodes: tuple[NodeRow, ...]
    flags: tuple[str, ...]
    spread: Mapping[str, tuple[float, float]]
    """Lowest and highest newest value of each metric, over the ranks that print it."""
    interval_s: float
    """Seconds of one value of a node's course; 0 without a history."""
    has_gpus: bool
    """Whether a GPU has figures; none has of a job that has ended."""
    is_gpu_course: bool
    """Whether the courses are those of GPUs: of GPUs that are split (MIG), NVML knows no utilisation."""


Row = NodeRow | RankRow


def make_rows(samples: JobSamples) -> TopRows:
    """Return what the screen shows of these samples: all the job's nodes, also those without any."""
    live, history, now = samples.live, samples.history, samples.now
    is_over = samples.state.is_terminal
    nodes = live["nodes"] if live else {}
    by_node: dict[str, list[tuple[int, LiveRank]]] = {}
    for text, rank in (live["ranks"] if live else {}).items():
        by_node.setdefault(rank["node"], []).append((int(text), rank))
    flagged = {flag["rank"] for flag in samples.flags if flag["rank"] >= 0}
    counts: dict[str, int] = {}
    for flag in samples.flags:
        counts[flag["node"]] = counts.get(flag["node"], 0) + 1
    has_gpus = any(_is_known(gpu) for node in nodes.values() for gpu in node["gpus"])
    is_gpu_course = any(gpu["utilisation"] >= 0 for node in nodes.values() for gpu in node["gpus"])
    names = dict.fromkeys((*samples.state.nodes, *nodes, *by_node))
    rows = []
    for name in names:
        ranks = tuple(
            RankRow(
                rank=number,
                cpu=0.0 if is_over or rank["ended"] else rank["cpu_permille"] / 1000,
                memory=0 if is_over or rank["ended"] else rank["memory"],
                silent_s=0.0 if is_over or rank["ended"] else max(0.0, now - rank["silent_since"]),
                metrics=rank["metrics"],
                ended=is_over or rank["ended"],
                is_flagged=number in flagged,
            )
            for number, rank in sorted(by_node.get(name, ()), key=lambda item: item[0])
        )
        node = nodes.get(name)
        rows.append(
            NodeRow(
                name,
                _state(node, ranks, now, has_ended=is_over),
                None if is_over else node,
                ranks,
                course(history, name, of_gpus=is_gpu_course),
                counts.get(name, 0),
            )
        )
    return TopRows(
        job=samples.state,
        now=now,
        nodes=tuple(rows),
        flags=tuple(flag["text"] for flag in samples.flags),
        spread=_spread(rows),
        interval_s=history["interval_s"] if history else 0.0,
        has_gpus=has_gpus and not is_over,
        is_gpu_course=is_gpu_course,
    )


def rows_in_view(shown: TopRows, view: View, *, with_ranks: bool) -> list[Row]:
    """Return the rows in the order of the view, each node's ranks after it."""
    nodes = [node for node in shown.nodes if node.flags or not view.only_flagged]
    rows: list[Row] = []
    for node in _sorted(nodes, view.sorting):
        rows.append(node)
        if with_ranks:
            rows.extend(rank for rank in node.ranks if rank.is_flagged or not view.only_flagged)
    return rows


def _sorted(nodes: Sequence[NodeRow], sorting: Sorting) -> Sequence[NodeRow]:
    if sorting == "cpu":
        return sorted(nodes, key=lambda node: -(node.live["cpu_permille"] if node.live else -1))
    if sorting == "silence":
        return sorted(nodes, key=lambda node: -node.silent_s)
    if sorting == "flags":
        return sorted(nodes, key=lambda node: -node.flags)
    return sorted(nodes, key=lambda node: node.name)


def _is_known(gpu: GpuSample) -> bool:
    return max(gpu["utilisation"], gpu["memory_total"], gpu["power_mw"]) >= 0


def course(history: History | None, name: str, *, of_gpus: bool) -> tuple[float | None, ...]:
    """Return the course of a node's utilisation: of its GPUs, or of its processors."""
    series = (history["nodes"].get(name) if history else None) or {}
    return tuple(series.get("gpu" if of_gpus else "cpu", ()))


def _state(node: LiveNode | None, ranks: Sequence[RankRow], now: float, *, has_ended: bool) -> str:
    if has_ended or (ranks and all(rank.ended for rank in ranks)):
        return "ended"
    if node is None:
        return "no data"
    age = now - node["time"]
    return "ok" if age <= STALE_S else f"old {min(9999, age):.0f}s"


def _spread(nodes: Sequence[NodeRow]) -> dict[str, tuple[float, float]]:
    spread: dict[str, tuple[float, float]] = {}
    for node in nodes:
        for rank in node.ranks:
            for name, value in rank.metrics.items():
                if math.isfinite(value):
                    low, high = spread.get(name, (value, value))
                    spread[name] = (min(low, value), max(high, value))
    return {name: spread[name] for name in in_order(spread)}


def in_order(names: Mapping[str, object]) -> list[str]:
    """Return metrics' names as they are shown: those that all jobs know first."""
    first = [name for name in FIRST_METRICS if name in names]
    return first + sorted(name for name in names if name not in first)
