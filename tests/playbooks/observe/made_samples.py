"""Samples of jobs of any size, made from one seed: the same for every run."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime

from launch.client.events import JobState
from launch.client.samples import JobSamples
from launch.remote.base.records import StateName
from launch.remote.sample.sample_records import Flag, GpuSample, History, Live, LiveNode, LiveRank, NodeSeries

__all__ = ["NOW", "flag", "job_state", "samples"]

NOW = 1_772_370_000.0
JOB = "train-20260301-090507-0f3a"
_GB = 1_000_000_000


def job_state(
    nodes: int, state: StateName = "RUNNING", *, job: str = JOB, per_node: int = 8, **fields: object
) -> JobState:
    ended = (
        datetime.fromtimestamp(NOW, UTC) if state in ("SUCCEEDED", "FAILED", "CANCELLED", "LOST") else None
    )
    queued = state == "QUEUED"
    made: dict[str, object] = {
        "job": job,
        "name": "train",
        "kind": "pytorch",
        "state": state,
        "reason": "",
        "exit_status": None,
        "nodes": tuple(f"node{number:06d}" for number in range(nodes)),
        "ranks": nodes * per_node,
        "port": None if queued else 6105,
        "created": datetime.fromtimestamp(NOW - 760, UTC),
        "started": None if queued else datetime.fromtimestamp(NOW - 750, UTC),
        "ended": ended,
        "failure": None,
    }
    return JobState(**{**made, **fields})  # type: ignore[arg-type]


def flag(text: str, node: int = 0, rank: int = -1, kind: str = "silent") -> Flag:
    return {"kind": kind, "node": f"node{node:06d}", "rank": rank, "text": text}  # type: ignore[typeddict-item]


def samples(
    nodes: int = 4,
    per_node: int = 8,
    *,
    gpus: int = 8,
    flags: Sequence[Flag] = (),
    state: JobState | None = None,
    metrics: Sequence[str] = ("step", "loss", "samples_per_s"),
    points: int = 90,
) -> JobSamples:
    """Of a job whose rank 17 has been silent for 40 s, and whose last node has no samples if there are 4."""
    chance = random.Random(7)
    live: Live = {"time": NOW - 0.2, "attempt": 0, "nodes": {}, "ranks": {}}
    history: History = {"start": NOW - 750, "interval_s": 8.0, "nodes": {}, "attempts": []}
    for number in range(nodes):
        name = f"node{number:06d}"
        if not (nodes == 4 and number == 3):
            live["nodes"][name] = _node(chance, number, gpus)
        history["nodes"][name] = _series(chance, points, gpus)
        for local in range(per_node):
            rank = number * per_node + local
            live["ranks"][str(rank)] = _rank(chance, rank, name, metrics)
    chosen = state or job_state(nodes, per_node=per_node)
    return JobSamples(chosen, live, history, tuple(flags), NOW)


def _node(chance: random.Random, number: int, gpus: int) -> LiveNode:
    return {
        "time": NOW - (12.0 if number == 2 else 0.4),
        "cpu_permille": chance.randrange(300, 1000),
        "memory_used": chance.randrange(40, 440) * _GB,
        "memory_total": 448 * _GB,
        "net_rx": chance.randrange(10_000_000),
        "net_tx": chance.randrange(10_000_000),
        "ib_rx": chance.randrange(12 * _GB) if gpus else -1,
        "ib_tx": chance.randrange(12 * _GB) if gpus else -1,
        "gpus": [_gpu(chance, index) for index in range(gpus)],
    }


def _gpu(chance: random.Random, index: int) -> GpuSample:
    return {
        "index": index,
        "utilisation": chance.randrange(101),
        "memory_used": chance.randrange(30) * _GB,
        "memory_total": 32 * _GB,
        "power_mw": chance.randrange(50_000, 300_000),
        "clock_events": 0,
    }


def _series(chance: random.Random, points: int, gpus: int) -> NodeSeries:
    values = [0.5 + 0.45 * math.sin(point / 5) + chance.uniform(-0.05, 0.05) for point in range(points)]
    course: list[float | None] = [*values]
    course[min(points - 1, 70)] = None
    return {"gpu" if gpus else "cpu": course, "cpu": course}


def _rank(chance: random.Random, rank: int, node: str, metrics: Sequence[str]) -> LiveRank:
    values = {"step": 1800.0 + chance.randrange(5), "loss": 2.3 / (rank + 1), "samples_per_s": 100.0 + rank}
    return {
        "time": NOW - 0.4,
        "node": node,
        "cpu_permille": chance.randrange(900, 8000),
        "memory": chance.randrange(2, 40) * _GB // 3,
        "silent_since": NOW - (40.0 if rank == 17 else 0.5),
        "metrics": {name: values.get(name, chance.uniform(0, 5)) for name in metrics},
        "ended": False,
    }
