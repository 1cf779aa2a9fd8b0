"""Records of a head for tests, which give the fields that matter to them."""

from __future__ import annotations

from typing import Any, cast

from launch.remote.metrics.metrics_records import ClusterFacts, HeadMetrics, JobMetrics, SendingState
from launch.remote.sample.sample_records import GpuSample, LiveNode, LiveRank

__all__ = ["NOW", "cluster", "gpu", "head", "job", "node", "rank", "sending"]

NOW = 1_700_000_000.0


def gpu(index: int = 0, **fields: Any) -> GpuSample:
    """A busy GPU of 32 GiB."""
    made = {
        "index": index,
        "utilisation": 87,
        "memory_used": 20 << 30,
        "memory_total": 32 << 30,
        "power_mw": 251_500,
        "clock_events": 4,
        **fields,
    }
    return cast("GpuSample", made)


def node(**fields: Any) -> LiveNode:
    """A node that was sampled a second ago."""
    made = {
        "time": NOW - 1,
        "cpu_permille": 625,
        "memory_used": 12 << 30,
        "memory_total": 672 << 30,
        "net_rx": 1000,
        "net_tx": 2000,
        "ib_rx": 3_000_000_000,
        "ib_tx": 4_000_000_000,
        "gpus": [],
        **fields,
    }
    return cast("LiveNode", made)


def rank(name: str = "node000000", **fields: Any) -> LiveRank:
    """A rank that was sampled a second ago, and printed three before."""
    made = {
        "time": NOW - 1,
        "node": name,
        "cpu_permille": 8000,
        "memory": 3 << 30,
        "silent_since": NOW - 4,
        "metrics": {"step": 120.0, "loss": 0.25},
        "ended": False,
        **fields,
    }
    return cast("LiveRank", made)


def job(id: str = "train-1", state: str = "RUNNING", **fields: Any) -> JobMetrics:
    """A job on one node, which waited five seconds for its start."""
    made = {
        "job": id,
        "name": "train",
        "kind": "pytorch",
        "state": state,
        "created": NOW - 100,
        "started": NOW - 95,
        "ended": None,
        "exit_status": None,
        "nodes": 1,
        "ranks": 2,
        "restarts": 0,
        "cost_usd": 0.58,
        "live_nodes": {},
        "live_ranks": {},
        **fields,
    }
    return cast("JobMetrics", made)


def head(*jobs: JobMetrics) -> HeadMetrics:
    return {"now": NOW, "jobs": list(jobs)}


def cluster(**fields: Any) -> ClusterFacts:
    made = {
        "stack": "dev",
        "size": "Standard_ND40rs_v2",
        "location": "southcentralus",
        "answers": {"node000000": True, "node000001": False},
        "usd_per_hour": 44.06,
        "usd": 110.15,
        **fields,
    }
    return cast("ClusterFacts", made)


def sending(**fields: Any) -> SendingState:
    """A node that has sent for a while, and lost a minute of it."""
    made = {"accepted": True, "sent": 5150, "dropped": 103, "last_sent": NOW - 20, **fields}
    return cast("SendingState", made)
