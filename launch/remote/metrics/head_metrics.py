"""A head's records as metrics need them: ``queue.json``, and each job's ``state.json`` and ``samples.json``.

Ranks run as the same user and may write there: each file is read with a bound, each field is checked, and odd
ones are left out. Nothing is written: another version of this code may own the folder.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from contextlib import suppress

from launch.remote.agent.activity import is_alive
from launch.remote.metrics.job_cost import job_cost
from launch.remote.sample.stored_samples import LIVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from launch.remote.metrics.metrics_records import HeadMetrics, JobMetrics
    from launch.remote.sample.sample_records import GpuSample, LiveNode, LiveRank

__all__ = ["ENDED_S", "LIVE_STATES", "head_metrics"]

ENDED_S = 3600.0
"""Seconds for which a job that has ended is still reported."""
_MOST_ENDED = 100
_SAMPLES_BYTES, _STATE_BYTES = 8 << 20, 1 << 20
"""Largest samples.json, which its writer keeps to, and largest state.json and queue.json."""
_MOST_NODES, _MOST_RANKS, _MOST_GPUS, _MOST_METRICS = 1024, 16384, 32, 32
_LARGEST = 10**18
_JOB = re.compile(r"[a-z0-9][a-z0-9-]{0,200}\Z")
LIVE_STATES = ("QUEUED", "STARTING", "RUNNING")
"""States of a job that has not ended; all others are terminal."""


def head_metrics(folder: str, now: float) -> HeadMetrics:
    """Return the jobs of the head with this ``~/.ranklift``: those of its queue, and at most 100 that ended
    in the last hour."""
    jobs = []
    for name in sorted({*_queued(folder), *_recent(f"{folder}/jobs", now)}):
        with suppress(ValueError):
            job = _job(f"{folder}/jobs/{name}", name, now)
            if job["ended"] is None or job["ended"] > now - ENDED_S:
                jobs.append(job)
    return {"now": now, "jobs": jobs}


def _queued(folder: str) -> list[str]:
    entries = _read(f"{folder}/queue.json", _STATE_BYTES)
    found = (
        (entry.get("job") for entry in entries if isinstance(entry, dict))
        if isinstance(entries, list)
        else ()
    )
    return [name for name in found if isinstance(name, str) and _JOB.match(name)]


def _recent(jobs: str, now: float) -> list[str]:
    """Return the jobs whose state changed within the last hour."""
    changed = []
    with suppress(OSError), os.scandir(jobs) as entries:
        for entry in entries:
            if _JOB.match(entry.name):
                with suppress(OSError):
                    at = os.stat(f"{entry.path}/state.json", follow_symlinks=False).st_mtime
                    if at > now - ENDED_S:
                        changed.append((at, entry.name))
    return [name for _, name in sorted(changed, reverse=True)[:_MOST_ENDED]]


def _job(folder: str, name: str, now: float) -> JobMetrics:
    """Return one job. Raise ValueError for a state.json that is missing or odd."""
    raw = _record(_read(f"{folder}/state.json", _STATE_BYTES))
    state = raw.get("state")
    if not isinstance(state, str):
        raise ValueError("state")  # noqa: TRY004  one error for all that is odd
    ended = _time(raw.get("ended"))
    if state in LIVE_STATES and not _has_supervisor(raw.get("supervisor")):
        state = "LOST"
    samples: Mapping[str, object] = {}
    if state == "RUNNING":
        with suppress(ValueError):
            samples = _record(_read(f"{folder}/{LIVE}", _SAMPLES_BYTES))
    nodes, status, created = raw.get("nodes"), raw.get("exit_status"), _time(raw.get("created"))
    started, count = _time(raw.get("started")), len(nodes) if isinstance(nodes, list) else 0
    return {
        "job": name,
        "name": str(raw.get("name", "")),
        "kind": str(raw.get("kind", "")),
        "state": state,
        "created": 0.0 if created is None else created,
        "started": started,
        "ended": ended,
        "exit_status": status if isinstance(status, int) and state not in LIVE_STATES else None,
        "nodes": count,
        "ranks": _whole(raw, "ranks"),
        "restarts": _whole(raw, "restarts"),
        "cost_usd": job_cost(raw.get("node_price"), count, started, now if ended is None else ended),
        "live_nodes": _live_nodes(samples.get("nodes")),
        "live_ranks": _live_ranks(samples.get("ranks")),
    }


def _has_supervisor(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("pid"), int):
        return False
    return is_alive({"pid": value["pid"], "started": value.get("started", 0), "boot": ""})


def _live_nodes(value: object) -> dict[str, LiveNode]:
    found: dict[str, LiveNode] = {}
    for name, raw in list(value.items())[:_MOST_NODES] if isinstance(value, dict) else ():
        with suppress(ValueError):
            found[name] = _live_node(_record(raw))
    return found


def _live_node(raw: Mapping[str, object]) -> LiveNode:
    gpus = raw.get("gpus")
    return {
        "time": _finite(raw.get("time")),
        "cpu_permille": _whole(raw, "cpu_permille"),
        "memory_used": _whole(raw, "memory_used"),
        "memory_total": _whole(raw, "memory_total"),
        "net_rx": _whole(raw, "net_rx"),
        "net_tx": _whole(raw, "net_tx"),
        "ib_rx": _whole(raw, "ib_rx"),
        "ib_tx": _whole(raw, "ib_tx"),
        "gpus": [_gpu(_record(gpu)) for gpu in gpus[:_MOST_GPUS]] if isinstance(gpus, list) else [],
    }


def _gpu(raw: Mapping[str, object]) -> GpuSample:
    return {
        "index": _whole(raw, "index"),
        "utilisation": _whole(raw, "utilisation"),
        "memory_used": _whole(raw, "memory_used"),
        "memory_total": _whole(raw, "memory_total"),
        "power_mw": _whole(raw, "power_mw"),
        "clock_events": _whole(raw, "clock_events"),
    }


def _live_ranks(value: object) -> dict[str, LiveRank]:
    found: dict[str, LiveRank] = {}
    for number, raw in list(value.items())[:_MOST_RANKS] if isinstance(value, dict) else ():
        if number.isdigit() and number.isascii():
            with suppress(ValueError):
                found[number] = _live_rank(_record(raw))
    return found


def _live_rank(raw: Mapping[str, object]) -> LiveRank:
    metrics = _record(raw.get("metrics", {}))
    values = [(name, _real(metrics[name])) for name in list(metrics)[:_MOST_METRICS]]
    return {
        "time": _finite(raw.get("time")),
        "node": str(raw.get("node", "")),
        "cpu_permille": _whole(raw, "cpu_permille"),
        "memory": _whole(raw, "memory"),
        "silent_since": _finite(raw.get("silent_since")),
        "metrics": {name: value for name, value in values if value is not None},
        "ended": raw.get("ended") is True,
    }


def _real(value: object) -> float | None:
    """Return a metric's value, which may be infinite or not a number: a loss often is."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and not (isinstance(value, int) and abs(value) > _LARGEST) else None  # type: ignore[arg-type]


def _finite(value: object) -> float:
    number = _real(value)
    if number is None or not math.isfinite(number):
        raise ValueError(repr(value)[:60])
    return number


def _time(value: object) -> float | None:
    return None if value is None else _finite(value)


def _whole(raw: Mapping[str, object], name: str) -> int:
    value = raw.get(name)
    if not isinstance(value, int) or abs(value) > _LARGEST:
        raise ValueError(name)
    return int(value)


def _record(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004  one error for all that is odd
    return value


def _read(path: str, limit: int) -> object:
    """Return what a file of JSON holds; None for one that is missing, torn, too long or not a plain file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        try:
            data = file.read(limit + 1)
            return json.loads(data) if len(data) <= limit else None
        except (OSError, ValueError, RecursionError):
            return None
