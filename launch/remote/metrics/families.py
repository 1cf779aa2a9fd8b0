"""Every family of metrics: name, type, help and labels.

Names follow Prometheus' "Metric and label naming": base units (bytes, seconds, ratios from 0 to 1) as suffix,
``_total`` for counters alone. ``promtool check metrics`` checks them in tests/see/test_metrics.py.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """A family of metrics."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    type: str = "gauge"


_JOB, _NODE, _GPU, _RANK = ("job_id",), ("node",), ("node", "gpu"), ("job_id", "rank", "node")
# Not `job`: Prometheus gives each series that label, the name of its scrape configuration.

FAMILIES = (
    Family("ranklift_cluster_info", "The cluster; always 1.", ("stack", "size", "location")),
    Family("ranklift_cluster_nodes", "Nodes of the cluster."),
    Family("ranklift_cluster_node_up", "Whether the node answered the last query, 1 or 0.", _NODE),
    Family(
        "ranklift_cluster_price_usd_per_hour",
        "List price of the stack's resources, in USD per hour, as far as it is known.",
    ),
    Family(
        "ranklift_cluster_cost_usd",
        "Estimate of the cost so far, in USD: list price of each existing resource, at its present number, "
        "since it was created.",
    ),
    Family("ranklift_queue_jobs", "Jobs of the head that have not ended, by state.", ("state",)),
    Family("ranklift_queue_longest_wait_seconds", "Time since the oldest waiting job was submitted."),
    Family(
        "ranklift_job_info",
        "A job that has not ended or ended in the last hour; always 1.",
        ("job_id", "name", "kind"),
    ),
    Family("ranklift_job_state", "The job's present state; always 1.", ("job_id", "state")),
    Family("ranklift_job_nodes", "Nodes of the job.", _JOB),
    Family("ranklift_job_ranks", "Ranks of the job.", _JOB),
    Family("ranklift_job_restarts_total", "Restarts of the job.", _JOB, "counter"),
    Family("ranklift_job_created_timestamp_seconds", "Unix time of the job's submission.", _JOB),
    Family("ranklift_job_started_timestamp_seconds", "Unix time of the start of the job's ranks.", _JOB),
    Family("ranklift_job_ended_timestamp_seconds", "Unix time of the job's end.", _JOB),
    Family("ranklift_job_exit_status", "Exit status of the job that has ended.", _JOB),
    Family(
        "ranklift_job_cost_usd",
        "List price of the job's nodes since its start, in USD; without disks, network and storage.",
        _JOB,
    ),
    Family(
        "ranklift_node_sample_age_seconds",
        "Age of the node's newest sample; older than 15 s are left out.",
        _NODE,
    ),
    Family("ranklift_node_cpu_ratio", "Use of all processors of the node together, 0 to 1.", _NODE),
    Family("ranklift_node_memory_used_bytes", "Memory in use on the node.", _NODE),
    Family("ranklift_node_memory_size_bytes", "Memory that the node has.", _NODE),
    Family(
        "ranklift_node_network_receive_bytes_per_second",
        "Bytes received by Ethernet devices, per second.",
        _NODE,
    ),
    Family(
        "ranklift_node_network_transmit_bytes_per_second",
        "Bytes sent by Ethernet devices, per second.",
        _NODE,
    ),
    Family(
        "ranklift_node_infiniband_receive_bytes_per_second",
        "Bytes received by InfiniBand ports, per second.",
        _NODE,
    ),
    Family(
        "ranklift_node_infiniband_transmit_bytes_per_second",
        "Bytes sent by InfiniBand ports, per second.",
        _NODE,
    ),
    Family(
        "ranklift_node_gpu_utilisation_ratio", "Share of time in which the GPU ran a kernel, 0 to 1.", _GPU
    ),
    Family("ranklift_node_gpu_memory_used_bytes", "Memory in use on the GPU.", _GPU),
    Family("ranklift_node_gpu_memory_size_bytes", "Memory that the GPU has.", _GPU),
    Family("ranklift_node_gpu_power_watts", "Power that the GPU draws.", _GPU),
    Family("ranklift_node_gpu_clock_events", "Reasons for lower clocks, NVML's bit mask as a number.", _GPU),
    Family("ranklift_rank_running", "Whether the rank runs, 1 or 0.", _RANK),
    Family(
        "ranklift_rank_cpu_ratio",
        "Processors that the rank and its descendants use; 8 busy threads are 8.",
        _RANK,
    ),
    Family("ranklift_rank_memory_bytes", "Resident memory of the rank and its descendants.", _RANK),
    Family("ranklift_rank_silent_seconds", "Time since the rank's last output, or since its start.", _RANK),
    Family(
        "ranklift_rank_metric",
        "Newest number that the job's pattern of this name found in the rank's output.",
        (*_RANK, "metric"),
    ),
    Family(
        "ranklift_monitor_up",
        "Whether Azure Monitor took all samples that the node sent the last time, 1 or 0.",
    ),
    Family("ranklift_monitor_samples_sent_total", "Samples that Azure Monitor took.", (), "counter"),
    Family(
        "ranklift_monitor_samples_dropped_total",
        "Samples that Azure Monitor did not take and that are not sent again.",
        (),
        "counter",
    ),
    Family("ranklift_monitor_last_sent_timestamp_seconds", "Unix time of the last samples that it took."),
)
"""In the order in which they are written."""
