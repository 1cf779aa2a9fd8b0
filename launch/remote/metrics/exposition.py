"""Records as Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats").

No sample has a timestamp: Prometheus takes the time of the scrape, and marks what is missing as stale.
"""

from __future__ import annotations

import math

from launch.remote.metrics.families import FAMILIES
from launch.remote.metrics.head_metrics import LIVE_STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from launch.remote.metrics.metrics_records import ClusterFacts, HeadMetrics, JobMetrics, SendingState
    from launch.remote.sample.sample_records import LiveNode, LiveRank

    Sample = tuple[str, tuple[tuple[str, str], ...], float]
    """Name of a family, labels with their values, value."""

__all__ = ["CONTENT_TYPE", "STALE_S", "exposition", "samples"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STALE_S = 15.0
"""Age from which a sample is left out: a runner sends more than one a second."""
_LABEL_LENGTH = 128
"""Most characters of a label's value: names of jobs and metrics are the user's."""


def exposition(
    heads: Sequence[HeadMetrics], cluster: ClusterFacts | None = None, sending: SendingState | None = None
) -> str:
    """Return the metrics of all heads' jobs, of the cluster and of what is sent elsewhere as one text.

    A node's newest sample counts, whichever head has it.

    >>> print(exposition([]), end="")
    # HELP ranklift_queue_jobs Jobs of the head that have not ended, by state.
    # TYPE ranklift_queue_jobs gauge
    ranklift_queue_jobs{state="queued"} 0
    ranklift_queue_jobs{state="starting"} 0
    ranklift_queue_jobs{state="running"} 0
    # HELP ranklift_queue_longest_wait_seconds Time since the oldest waiting job was submitted.
    # TYPE ranklift_queue_longest_wait_seconds gauge
    ranklift_queue_longest_wait_seconds 0
    """
    return _collect(heads, cluster, sending).text()


def samples(
    heads: Sequence[HeadMetrics], cluster: ClusterFacts | None = None, sending: SendingState | None = None
) -> list[Sample]:
    """Return what :func:`exposition` writes, as data and without escapes.

    >>> samples([])[0]
    ('ranklift_queue_jobs', (('state', 'queued'),), 0)
    """
    return _collect(heads, cluster, sending).all()


def _collect(
    heads: Sequence[HeadMetrics], cluster: ClusterFacts | None, sending: SendingState | None
) -> _Samples:
    found = _Samples()
    if cluster is not None:
        _add_cluster(found, cluster)
    _add_queue(found, heads)
    newest: dict[str, float] = {}
    for head in heads:
        for job in head["jobs"]:
            _add_job(found, job)
            for name, node in job["live_nodes"].items():
                age = max(0.0, head["now"] - node["time"])
                if age <= min(STALE_S, newest.get(name, STALE_S)):
                    newest[name] = age
                    _add_node(found, name, node, age)
            for number, rank in job["live_ranks"].items():
                if head["now"] - rank["time"] <= STALE_S:
                    _add_rank(found, (job["job"], number, rank["node"]), rank, head["now"])
    if sending is not None:
        _add_sending(found, sending)
    return found


class _Samples:
    """Values by family and labels."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {family.name: {} for family in FAMILIES}

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a value, unless it is unknown (None)."""
        if value is not None:
            self._values["ranklift_" + name][tuple(map(_bounded, labels))] = value

    def all(self) -> list[Sample]:
        return [
            (family.name, tuple(zip(family.labels, labels)), value)  # noqa: B905  (Python 3.8)
            for family in FAMILIES
            for labels, value in self._values[family.name].items()
        ]

    def text(self) -> str:
        lines = []
        for family in FAMILIES:
            values = self._values[family.name]
            if values:
                lines.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n")
            for labels, value in values.items():
                pairs = ",".join(f'{k}="{_label(v)}"' for k, v in zip(family.labels, labels))  # noqa: B905  (Python 3.8)
                lines.append(
                    f"{family.name}{{{pairs}}} {_number(value)}\n"
                    if pairs
                    else f"{family.name} {_number(value)}\n"
                )
        return "".join(lines)


def _label(value: str) -> str:
    """Return a label's value, escaped.

    >>> print(_label('a"b' + chr(92) + chr(10) + "c"))
    a\\"b\\\\\\nc
    """
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _bounded(value: str) -> str:
    return value if len(value) <= _LABEL_LENGTH else value[: _LABEL_LENGTH - 1] + "…"


def _number(value: float) -> str:
    """Return a value as Go's ParseFloat reads it.

    >>> _number(3), _number(0.25), _number(1e-7), _number(float("nan")), _number(float("-inf"))
    ('3', '0.25', '1e-07', 'NaN', '-Inf')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)  # noqa: PLR2004  exact


def _add_cluster(found: _Samples, cluster: ClusterFacts) -> None:
    found.add("cluster_info", 1, cluster["stack"], cluster["size"], cluster["location"])
    answers = cluster["answers"]
    if answers is not None:
        found.add("cluster_nodes", len(answers))
        for node, answered in answers.items():
            found.add("cluster_node_up", int(answered), node)
    found.add("cluster_price_usd_per_hour", cluster["usd_per_hour"])
    found.add("cluster_cost_usd", cluster["usd"])


def _add_queue(found: _Samples, heads: Sequence[HeadMetrics]) -> None:
    counts, longest = dict.fromkeys(LIVE_STATES, 0), 0.0
    for head in heads:
        for job in head["jobs"]:
            if job["state"] in counts:
                counts[job["state"]] += 1
            if job["state"] == "QUEUED":
                longest = max(longest, head["now"] - job["created"])
    for state, count in counts.items():
        found.add("queue_jobs", count, state.lower())
    found.add("queue_longest_wait_seconds", longest)


def _add_job(found: _Samples, job: JobMetrics) -> None:
    name = job["job"]
    found.add("job_info", 1, name, job["name"], job["kind"])
    found.add("job_state", 1, name, job["state"].lower())
    found.add("job_nodes", job["nodes"], name)
    found.add("job_ranks", job["ranks"], name)
    found.add("job_restarts_total", job["restarts"], name)
    found.add("job_created_timestamp_seconds", job["created"], name)
    found.add("job_started_timestamp_seconds", job["started"], name)
    found.add("job_ended_timestamp_seconds", job["ended"], name)
    found.add("job_exit_status", job["exit_status"], name)
    found.add("job_cost_usd", job.get("cost_usd"), name)


def _add_node(found: _Samples, name: str, node: LiveNode, age: float) -> None:
    found.add("node_sample_age_seconds", round(age, 3), name)
    found.add("node_cpu_ratio", _known(node["cpu_permille"], 1000), name)
    found.add("node_memory_used_bytes", _known(node["memory_used"]), name)
    found.add("node_memory_size_bytes", _known(node["memory_total"]), name)
    found.add("node_network_receive_bytes_per_second", _known(node["net_rx"]), name)
    found.add("node_network_transmit_bytes_per_second", _known(node["net_tx"]), name)
    found.add("node_infiniband_receive_bytes_per_second", _known(node["ib_rx"]), name)
    found.add("node_infiniband_transmit_bytes_per_second", _known(node["ib_tx"]), name)
    for gpu in node["gpus"]:
        labels = name, str(gpu["index"])
        found.add("node_gpu_utilisation_ratio", _known(gpu["utilisation"], 100), *labels)
        found.add("node_gpu_memory_used_bytes", _known(gpu["memory_used"]), *labels)
        found.add("node_gpu_memory_size_bytes", _known(gpu["memory_total"]), *labels)
        found.add("node_gpu_power_watts", _known(gpu["power_mw"], 1000), *labels)
        found.add("node_gpu_clock_events", _known(gpu["clock_events"]), *labels)


def _add_rank(found: _Samples, labels: tuple[str, str, str], rank: LiveRank, now: float) -> None:
    found.add("rank_running", int(not rank["ended"]), *labels)
    if rank["ended"]:
        return
    found.add("rank_cpu_ratio", _known(rank["cpu_permille"], 1000), *labels)
    found.add("rank_memory_bytes", _known(rank["memory"]), *labels)
    found.add("rank_silent_seconds", round(max(0.0, now - rank["silent_since"]), 3), *labels)
    for name, value in rank["metrics"].items():
        found.add("rank_metric", value, *labels, name)


def _add_sending(found: _Samples, sending: SendingState) -> None:
    found.add("monitor_up", int(sending["accepted"]))
    found.add("monitor_samples_sent_total", sending["sent"])
    found.add("monitor_samples_dropped_total", sending["dropped"])
    found.add("monitor_last_sent_timestamp_seconds", sending["last_sent"])


def _known(value: float, scale: int = 1) -> float | None:
    """Return a sampled number in its base unit; None where it is unknown (-1)."""
    return None if value < 0 else value if scale == 1 else value / scale
