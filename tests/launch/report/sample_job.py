"""A job of two launches for tests of its report: the second repeats steps of the first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from launch.client.events import Failure, JobState
from launch.client.query import Happening, JobReport
from launch.remote.sample.sample_records import AttemptSteps, History, NodeSeries
from launch.report.facts import JobFacts, collect_facts

__all__ = ["EVENTS", "NODES", "START", "attempt", "facts", "history", "phase", "report", "spans_of"]

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
START = NOON.timestamp()
NODES = ("node000000", "node000001", "node000002")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def phase(name: str, start: float, end: float, attempt: int = 0, **fields: Any) -> Happening:
    """A phase, in seconds since noon."""
    given = {"bytes": 0, "verdict": "", **fields}
    times = {"start": START + start, "end": START + end}
    return Happening(at(end), "phase", {"phase": name, "attempt": attempt, **times, **given})


def attempt(
    number: int, steps: tuple[float, float] | None, times: tuple[float, float], **f: Any
) -> AttemptSteps:
    """A launch with its first and last step, and when these came, in seconds since noon."""
    first, last = steps or (None, None)
    made: AttemptSteps = {
        "attempt": number,
        "started": START + times[0] - 5,
        "ended": START + times[1] + 1,
        "first_step": first,
        "first_step_at": None if steps is None else START + times[0],
        "last_step": last,
        "last_step_at": None if steps is None else START + times[1],
        "has_epochs": False,
        "epoch_steps": last,
        "first_epoch": None,
        "last_epoch": None,
        "checkpoints": 0,
        "checkpoint_s": 0.0,
    }
    return {**made, **f}  # type: ignore[typeddict-item]


def series(rate: float, gpu: float) -> NodeSeries:
    """Ten intervals of a node; in two of them nothing was sampled."""
    return {
        "cpu": [0.25, 0.5, 0.5, 0.5, None, None, 0.5, 0.5, 0.5, 0.25],
        "gpu": [0.0, gpu, gpu, gpu, None, None, gpu, gpu, gpu, 0.0],
        "memory": [8e9] * 4 + [None] * 2 + [9e9] * 4,
        "network": [1e6] * 4 + [None] * 2 + [2e6] * 4,
        "infiniband": [2e9] * 4 + [None] * 2 + [4e9] * 4,
        "power": [1200.0] * 4 + [None] * 2 + [1300.0] * 4,
        "metric:samples_per_s": [None, rate, rate, rate, None, None, None, rate, rate, rate],
    }


EVENTS = (
    phase("stage-environment", -75, -13),
    phase("stage-code", -12, -1, bytes=12_300_000),
    phase("queue", 0, 4),
    phase("start", 4, 6),
    phase("look", 6, 9),
    Happening(
        at(8),
        "probe",
        {
            **{"source": "probe", "verdict": "proven", "transport": "InfiniBand, 8 HCAs a node, GPUDirect"},
            **{"reason": "", "seconds": 2.5},
            "lines": [
                {"rank": 0, "node": NODES[0], "line": "NCCL INFO Channel 00/0 : 0[0] -> 8[0] via NET/IB/0"}
            ],
        },
    ),
    phase("run", 9, 69),
    phase("end", 69, 71, verdict="rank 2 on node000001 ended with exit status 3"),
    Happening(
        at(70),
        "failure",
        {"rank": 2, "node": NODES[1], "status": 3, "last_lines": ["Traceback", "loss is nan"]},
    ),
    Happening(at(71), "restart", {"count": 1, "reason": "rank 2 on node000001 ended with exit status 3"}),
    phase("start", 71, 73, 1),
    phase("look", 73, 75, 1),
    phase("run", 75, 195, 1),
    phase("end", 195, 196, 1),
    phase("upload", 196, 200, 1, bytes=5_000_000_000),
)


def report(**fields: Any) -> JobReport:
    """The job's record."""
    state: dict[str, Any] = {
        **{"job": "train-20260301-120000-0f3a", "name": "train", "kind": "pytorch", "state": "SUCCEEDED"},
        **{"reason": "", "exit_status": 0, "nodes": NODES, "ranks": 6, "port": 6105},
        **{"created": NOON, "started": at(4), "ended": at(200), "restarts": 1},
        "failure": Failure(2, NODES[1], 3, ("Traceback", "loss is nan")),
    }
    given: dict[str, Any] = {
        **{"command": ("train.py", "--epochs", "3"), "code": "48aa0fc66d8e2bb9", "timeout_s": 7200.0},
        **{"grace_s": 30.0, "max_restarts": 2, "ends": (), "events": EVENTS},
        "ranks": {node: (2 * n, 2 * n + 1) for n, node in enumerate(NODES)},
        "folder": "/home/azureuser/.ranklift/jobs/train-20260301-120000-0f3a",
    }
    of_state = {name: fields.pop(name) for name in list(fields) if name in JobState.__dataclass_fields__}
    return JobReport(state=JobState(**(state | of_state)), **(given | fields))


def history(**fields: Any) -> History:
    """Steps 0 to 100 in the first launch, 61 to 240 in the second, which begins at a checkpoint."""
    made: History = {
        "start": START + 9,
        "interval_s": 19.0,
        "nodes": {node: series(rate, 0.9) for node, rate in zip(NODES, (184.0, 180.0, 121.5), strict=True)},
        "attempts": [
            attempt(0, (0, 99), (16, 66), checkpoints=1, checkpoint_s=2.0),
            attempt(1, (60, 239), (81, 191), checkpoints=4, checkpoint_s=8.0),
        ],
        "lines": [
            {"metric": metric, "value": value, "node": NODES[0], "rank": 0, "line": "step 12 samples/s 92.0"}
            for metric, value in (("step", 12.0), ("samples_per_s", 92.0))
        ],
    }
    return {**made, **fields}  # type: ignore[typeddict-item]


def facts(*, sampled: History | None = None, flags: tuple[str, ...] = (), **fields: Any) -> JobFacts:
    """The facts of the job with these fields in its record."""
    return collect_facts(report(**fields), history() if sampled is None else sampled, flags, START + 200)


def spans_of(*events: Happening, **fields: Any) -> JobFacts:
    """The facts of a job with these events that was not sampled."""
    return collect_facts(report(events=events, **fields), None, (), START + 200)
