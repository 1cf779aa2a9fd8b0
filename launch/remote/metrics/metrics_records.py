"""Types of what metrics are made of: a head's jobs with their newest samples, facts of the cluster, and how
sending to Azure Monitor goes."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.reading import Count, ExitStatus, JobId, NodeName, RankKey, UnixTime
from launch.remote.sample.sample_records import LiveNode, LiveRank

__all__ = ["ClusterFacts", "HeadMetrics", "JobMetrics", "SendingState"]

# ruff: noqa: UP006, UP045  (these annotations may be evaluated)


class JobMetrics(TypedDict):
    """A job by its state, and its newest samples while it runs."""

    job: JobId
    name: str
    kind: str
    state: str
    """LOST for a job whose supervisor is gone, whatever state.json has."""
    created: UnixTime
    started: UnixTime | None
    ended: UnixTime | None
    exit_status: Optional[ExitStatus]
    nodes: Count
    ranks: Count
    restarts: Count
    cost_usd: Optional[float]
    """List price of its nodes since its start."""
    live_nodes: Dict[NodeName, LiveNode]
    live_ranks: Dict[RankKey, LiveRank]


class HeadMetrics(TypedDict):
    """All that one head knows."""

    now: UnixTime
    """By the head's clock, by which its samples have their times."""
    jobs: List[JobMetrics]


class ClusterFacts(TypedDict):
    """Facts of the cluster that no head's records hold; None for what is unknown where metrics are made."""

    stack: str
    size: str
    location: str
    answers: Optional[Dict[str, bool]]
    """By node, whether it answered."""
    usd_per_hour: Optional[float]
    usd: Optional[float]


class SendingState(TypedDict):
    """How a node's sending to Azure Monitor goes, counted since its service started."""

    accepted: bool
    """Whether Azure Monitor took all samples of the last time."""
    sent: int
    """Samples that it took."""
    dropped: int
    """Samples that were given up."""
    last_sent: Optional[float]
    """Unix time of the last samples that it took."""
