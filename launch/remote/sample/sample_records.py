"""Types of what a job's nodes and ranks use and print, sampled as long as its ranks run.

A runner sends a :class:`Sample`, of whole numbers and text, for frames are bencoded. The head keeps the
newest of each node and rank as :class:`Live` (samples.json), and the job's course as :class:`History`
(history.json). Ranks do not import this module.
"""

from __future__ import annotations

from typing import Dict, List, Literal, TypedDict  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base.records import State
from launch.remote.reading import Count, NodeName, Rank, RankKey, Seconds, UnixTime

__all__ = [
    "AttemptSteps",
    "Flag",
    "GpuSample",
    "History",
    "Live",
    "LiveNode",
    "LiveRank",
    "MetricLine",
    "NodeSample",
    "NodeSeries",
    "RankSample",
    "Sample",
    "SampleReport",
    "Series",
]

# ruff: noqa: UP006  (these aliases are evaluated)
Series = List["float | None"]
"""Means of the history's intervals, the oldest first; None where nothing was sampled."""
NodeSeries = Dict[str, Series]
"""Of one node, by name: ``cpu`` (share of all its processors, 0 to 1), ``memory`` (bytes), ``network`` and
``infiniband`` (bytes each second, both ways together), ``gpu`` (mean utilisation, 0 to 1), ``power`` (W, of
all its GPUs), and each metric of its ranks under ``metric:NAME``."""


class GpuSample(TypedDict):
    """One GPU, as NVML reports it; -1 for what it does not report."""

    index: int
    utilisation: int
    """Percent."""
    memory_used: int
    memory_total: int
    power_mw: int
    clock_events: int
    """NVML's mask of the reasons for which its clocks are below what they could be."""


class NodeSample(TypedDict):
    """A node, since the sample before."""

    cpu_permille: int
    """Of all the node's processors together."""
    memory_used: int
    memory_total: int
    net_rx: int
    """Bytes each second of the network devices, loopback and IPoIB excepted."""
    net_tx: int
    ib_rx: int
    """Bytes each second of all InfiniBand ports; -1 where the node has none."""
    ib_tx: int
    gpus: list[GpuSample]


class RankSample(TypedDict):
    """A rank, since the sample before."""

    rank: int
    cpu_permille: int
    """Of one processor, its descendants included: 8 busy threads are 8000."""
    memory: int
    """Resident bytes, its descendants included."""
    silent_ms: int
    """Since its last output, or since its start."""
    metrics: dict[str, str]
    """By name, the last number that the metric's pattern found in its lines; only what is new."""
    lines: dict[str, str]
    """By metric, the line that it was found in; only where no line of its form was sent before."""


class Sample(TypedDict):
    """Frame SAMPLE."""

    node: list[NodeSample]
    """One from one runner of each node, none from the others."""
    ranks: list[RankSample]


class LiveNode(NodeSample):
    """The newest sample of a node."""

    time: UnixTime
    """When it came, by the head's clock."""


class LiveRank(TypedDict):
    """The newest sample of a rank."""

    time: UnixTime
    """When it came, by the head's clock."""
    node: NodeName
    cpu_permille: int
    memory: int
    silent_since: UnixTime
    """Of its last output, or of its start, by the head's clock."""
    metrics: dict[str, float]
    """By name, the newest value of each."""
    ended: bool


class Live(TypedDict):
    """samples.json: replaced at most five times a second, and at the end of each launch."""

    time: UnixTime
    attempt: Count
    """0 for the job's first launch."""
    nodes: dict[NodeName, LiveNode]
    ranks: dict[RankKey, LiveRank]


class MetricLine(TypedDict):
    """A line that a metric was read from."""

    metric: str
    value: float
    node: NodeName
    rank: Rank
    line: str


class AttemptSteps(TypedDict):
    """The steps of one launch, by the metric ``step`` of the rank that is furthest."""

    attempt: Count
    started: UnixTime
    ended: UnixTime | None
    first_step: float | None
    """None without such a metric."""
    first_step_at: UnixTime | None
    last_step: float | None
    """Where steps begin again in each epoch, that of the last epoch with those of the ones before."""
    last_step_at: UnixTime | None
    has_epochs: bool
    """Whether steps began again within the launch."""
    epoch_steps: float | None
    """Steps of its longest epoch."""
    first_epoch: float | None
    """Metric ``epoch`` of the first step, and of the last; None without such a metric."""
    last_epoch: float | None
    checkpoints: Count
    checkpoint_s: Seconds
    """Sum of the metric ``checkpoint_s`` of the rank with the lowest number that prints one."""


FlagKind = Literal["silent", "slow", "no-infiniband", "clocks", "stale", "memory", "idle-gpu"]


class Flag(TypedDict):
    """What of the samples needs a look."""

    kind: FlagKind
    node: NodeName | Literal[""]
    """Empty for several."""
    rank: Rank
    """-1 for a node, and for several ranks."""
    text: str
    """One line with the figure and its unit."""


class SampleReport(TypedDict):
    """Answer of ``samples``."""

    state: State
    live: Live | None
    """None where nothing was sampled in the launch that the state is about."""
    history: History | None
    flags: list[Flag]
    """None of a job that has ended."""
    now: UnixTime
    """The head's time."""


class _History(TypedDict):
    """history.json: the job's course in at most 240 intervals; once these are full, each two become one."""

    start: UnixTime
    """By the head's clock."""
    interval_s: Seconds
    nodes: dict[NodeName, NodeSeries]
    attempts: list[AttemptSteps]


class History(_History, total=False):
    """The job's course."""

    lines: list[MetricLine]
    """A few for each metric, each of another form. Older node code has none."""
