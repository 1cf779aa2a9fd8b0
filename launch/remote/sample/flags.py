"""What of a job's samples needs a look, in words.

Limits are set where a node or a rank differs from the others of its job, for nobody knows the job's own
figures: a limit is passed for long enough, so that a pause for a checkpoint raises no flag.
"""

from __future__ import annotations

from typing import Collection, Iterator  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base.health_records import Promise
from launch.remote.sample.sample_records import Flag, GpuSample, History, Live, LiveNode

__all__ = [
    "IDLE_GPU",
    "MEMORY_SHARE",
    "SILENT_S",
    "SLOW_SHARE",
    "STALE_S",
    "flags",
]

SILENT_S = 30.0
"""Silence of a rank that has printed before."""
STALE_S = 5.0
"""Age of a node's newest sample: several were missed."""
SLOW_SHARE = 0.2
"""Part by which a node's rate is below the median of all."""
MEMORY_SHARE = 0.95
IDLE_GPU = 0.05
"""Utilisation below which GPUs are idle, where the median of all nodes is above :data:`_BUSY_GPU`."""
_BUSY_GPU = 0.3
_NO_TRAFFIC, _TRAFFIC = 1e3, 1e6
"""Bytes each second: a node below the first is without traffic where the median of the others is above the
second. Ports count some packets of their own."""
_FEWEST_FOR_MEDIAN = 3
_LATEST_S = 20.0
"""Span of the course that a comparison needs, and uses."""
_FEWEST_INTERVALS = 3
_MANY = 8
"""Ranks that are flagged one by one; of more there is one flag."""
_SLOWDOWNS = {0x08: "hardware", 0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake"}
"""Bits of the clocks' event reasons (nvml.h, nvmlClocksEventReason*); a power cap is not among them, for it
bounds every GPU that is busy."""
_GIB = 2**30


def flags(live: Live | None, history: History | None, promise: Promise, now: float) -> list[Flag]:
    """Return the flags of a running job at ``now``, by the head's clock, the gravest first."""
    if live is None:
        return []
    busy = {rank["node"] for rank in live["ranks"].values() if not rank["ended"]}
    nodes = {name: live["nodes"][name] for name in sorted(live["nodes"]) if name in busy}
    stale = list(_stale(nodes, now))
    fresh = {name: node for name, node in nodes.items() if now - node["time"] <= STALE_S}
    latest = _latest(history, list(fresh)) if history else {}
    found = [
        *stale,
        *_silent(live, history, fresh, now),
        *_without_infiniband(fresh, latest, promise),
        *_slow(latest),
        *_idle(fresh, latest),
    ]
    for name, node in fresh.items():
        found += _of_node(name, node)
    return found


def _flag(kind: str, node: str, text: str, rank: int = -1) -> Flag:
    return {"kind": kind, "node": node, "rank": rank, "text": text}  # type: ignore[typeddict-item]


def _stale(nodes: dict[str, LiveNode], now: float) -> Iterator[Flag]:
    for name, node in nodes.items():
        age = now - node["time"]
        if age > STALE_S:
            yield _flag("stale", name, f"{name} has sent no sample for {age:.0f} s")


def _silent(live: Live, history: History | None, fresh: dict[str, LiveNode], now: float) -> list[Flag]:
    """Return a flag for each rank that stopped printing; one that has not printed since the first sample of
    its launch, as most where only rank 0 prints, has none."""
    attempts = [one for one in history["attempts"] if one["attempt"] == live["attempt"]] if history else []
    started = attempts[-1]["started"] if attempts else float("inf")
    found = []
    for number, rank in sorted(live["ranks"].items(), key=lambda item: int(item[0])):
        seconds = now - rank["silent_since"]
        has_printed = rank["silent_since"] > started
        if has_printed and seconds > SILENT_S and not rank["ended"] and rank["node"] in fresh:
            text = f"rank {number} silent for {seconds:.0f} s"
            found.append(_flag("silent", rank["node"], text, int(number)))
    if len(found) > _MANY:
        return [_flag("silent", "", f"{len(found)} ranks silent for more than {SILENT_S:.0f} s")]
    return found


def _latest(history: History, names: list[str]) -> dict[str, dict[str, float]]:
    """Return by node the mean of each series' latest intervals; without those that are too short."""
    count = max(_FEWEST_INTERVALS, int(_LATEST_S / history["interval_s"]))
    found: dict[str, dict[str, float]] = {}
    for name in names:
        for series, values in history["nodes"].get(name, {}).items():
            known = [value for value in values[-count:] if value is not None]
            if len(known) >= _FEWEST_INTERVALS:
                found.setdefault(name, {})[series] = sum(known) / len(known)
    return found


def _median(values: Collection[float]) -> float:
    """Return the median; :mod:`statistics` imports a dozen modules for it.

    >>> _median([3.0, 1.0, 9.0]), _median([1.0, 3.0])
    (3.0, 2.0)
    """
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _of_series(latest: dict[str, dict[str, float]], series: str) -> dict[str, float]:
    return {name: its[series] for name, its in latest.items() if series in its}


def _without_infiniband(
    fresh: dict[str, LiveNode], latest: dict[str, dict[str, float]], promise: Promise
) -> Iterator[Flag]:
    if promise.get("hcas", 0) > 0:
        for name, node in fresh.items():
            if node["ib_tx"] < 0:
                yield _flag("no-infiniband", name, f"{name} has no InfiniBand port")
    rates = _of_series(latest, "infiniband")
    for name, rate in rates.items():
        others = [other for its, other in rates.items() if its != name]
        if rate < _NO_TRAFFIC and others and _median(others) > _TRAFFIC:
            yield _flag("no-infiniband", name, f"{name} sends no InfiniBand traffic")


def _slow(latest: dict[str, dict[str, float]]) -> Iterator[Flag]:
    rates = _of_series(latest, "metric:samples_per_s")
    median = _median(rates.values()) if len(rates) >= _FEWEST_FOR_MEDIAN else 0.0
    for name, rate in rates.items():
        if median > 0 and rate < (1 - SLOW_SHARE) * median:
            yield _flag("slow", name, f"{name} {100 * (1 - rate / median):.0f} % slower than the median")


def _idle(fresh: dict[str, LiveNode], latest: dict[str, dict[str, float]]) -> Iterator[Flag]:
    used = _of_series(latest, "gpu")
    if used and _median(used.values()) > _BUSY_GPU:
        for name, share in used.items():
            if share < IDLE_GPU:
                text = f"{name} {len(fresh[name]['gpus'])} GPUs at {100 * share:.0f} %"
                yield _flag("idle-gpu", name, f"{text}, the median node at {_percent(used)}")


def _percent(shares: dict[str, float]) -> str:
    return f"{100 * _median(shares.values()):.0f} %"


def _of_node(name: str, node: LiveNode) -> Iterator[Flag]:
    """Yield the flags of a node by itself."""
    used, total = node["memory_used"], node["memory_total"]
    if total > 0 and used > MEMORY_SHARE * total:
        text = f"{name} uses {used / _GIB:.0f} of {total / _GIB:.0f} GiB of memory"
        yield _flag("memory", name, text)
    slowed = {gpu["index"]: _reasons(gpu) for gpu in node["gpus"]}
    for index, reasons in slowed.items():
        if reasons:
            yield _flag("clocks", name, f"{name} GPU {index} slowed: {reasons}")


def _reasons(gpu: GpuSample) -> str:
    mask = max(0, gpu["clock_events"])
    return ", ".join(text for bit, text in _SLOWDOWNS.items() if mask & bit)
