"""The dashboard of docs/grafana/ranklift.json, made of the metrics' names, and the queries of any dashboard.

Form: Grafana's "Dashboard JSON model" (grafana.com/docs, build-dashboards/view-dashboard-json-model).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from launch.remote.metrics.families import FAMILIES

__all__ = ["DASHBOARD", "make_dashboard", "metrics_of", "queries"]

DASHBOARD = Path(__file__).parents[4] / "docs" / "grafana" / "ranklift.json"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_OF = '{job_id=~"$job"}'
_NAME = re.compile(r"ranklift_[a-z0-9_]+")


def _share(by: str, name: str) -> str:
    return f"max by ({by}) (ranklift_{name}_used_bytes / ranklift_{name}_size_bytes)"


# Title, kind, unit, columns, and queries by legend. Several heads may know one node: `max by (node)`.
_ROWS: tuple[tuple[str, tuple[tuple[str, str, str, int, dict[str, str]], ...]], ...] = (
    (
        "Cluster",
        (
            ("Nodes that answer", "stat", "none", 4, {"": "sum(ranklift_cluster_node_up)"}),
            ("Nodes", "stat", "none", 4, {"": "max(ranklift_cluster_nodes)"}),
            ("Cost so far", "stat", "currencyUSD", 4, {"": "max(ranklift_cluster_cost_usd)"}),
            ("Price per hour", "stat", "currencyUSD", 4, {"": "max(ranklift_cluster_price_usd_per_hour)"}),
            ("Jobs", "stat", "none", 4, {"{{state}}": "sum by (state) (ranklift_queue_jobs)"}),
            ("Longest wait", "stat", "s", 4, {"": "max(ranklift_queue_longest_wait_seconds)"}),
        ),
    ),
    (
        "Job $job",
        (
            ("State", "stat", "none", 4, {"{{job_id}}: {{state}}": f"ranklift_job_state{_OF}"}),
            (
                "Nodes, ranks",
                "stat",
                "none",
                4,
                {"nodes": f"sum(ranklift_job_nodes{_OF})", "ranks": f"sum(ranklift_job_ranks{_OF})"},
            ),
            ("Restarts", "stat", "none", 3, {"{{job_id}}": f"ranklift_job_restarts_total{_OF}"}),
            (
                "Runs since",
                "stat",
                "dateTimeFromNow",
                4,
                {"": f"max(ranklift_job_started_timestamp_seconds{_OF}) * 1000"},
            ),
            ("Ranks that run", "stat", "none", 3, {"": f"sum(ranklift_rank_running{_OF})"}),
            ("Longest silence of a rank", "stat", "s", 3, {"": f"max(ranklift_rank_silent_seconds{_OF})"}),
            ("Cost of the nodes", "stat", "currencyUSD", 3, {"": f"sum(ranklift_job_cost_usd{_OF})"}),
            (
                "Step",
                "timeseries",
                "none",
                8,
                {
                    "furthest": 'max(ranklift_rank_metric{job_id=~"$job",metric="step"})',
                    "last": 'min(ranklift_rank_metric{job_id=~"$job",metric="step"})',
                },
            ),
            (
                "Loss",
                "timeseries",
                "none",
                8,
                {"mean": 'avg(ranklift_rank_metric{job_id=~"$job",metric="loss"})'},
            ),
            (
                "Samples per second",
                "timeseries",
                "none",
                8,
                {"rank {{rank}}": 'ranklift_rank_metric{job_id=~"$job",metric="samples_per_s"}'},
            ),
        ),
    ),
    (
        "Nodes",
        (
            (
                "Processors",
                "timeseries",
                "percentunit",
                8,
                {"{{node}}": "max by (node) (ranklift_node_cpu_ratio)"},
            ),
            (
                "Memory in use",
                "timeseries",
                "percentunit",
                8,
                {"{{node}}": _share("node", "node_memory")},
            ),
            (
                "Age of the newest sample",
                "timeseries",
                "s",
                8,
                {"{{node}}": "min by (node) (ranklift_node_sample_age_seconds)"},
            ),
            (
                "Network",
                "timeseries",
                "Bps",
                12,
                {
                    "{{node}} in": "max by (node) (ranklift_node_network_receive_bytes_per_second)",
                    "{{node}} out": "max by (node) (ranklift_node_network_transmit_bytes_per_second)",
                },
            ),
            (
                "InfiniBand",
                "timeseries",
                "Bps",
                12,
                {
                    "{{node}} in": "max by (node) (ranklift_node_infiniband_receive_bytes_per_second)",
                    "{{node}} out": "max by (node) (ranklift_node_infiniband_transmit_bytes_per_second)",
                },
            ),
        ),
    ),
    (
        "GPUs",
        (
            (
                "Utilisation",
                "timeseries",
                "percentunit",
                8,
                {"{{node}} GPU {{gpu}}": "max by (node, gpu) (ranklift_node_gpu_utilisation_ratio)"},
            ),
            (
                "Memory in use",
                "timeseries",
                "percentunit",
                8,
                {"{{node}} GPU {{gpu}}": _share("node, gpu", "node_gpu_memory")},
            ),
            (
                "Power of each node",
                "timeseries",
                "watt",
                4,
                {"{{node}}": "sum by (node) (max by (node, gpu) (ranklift_node_gpu_power_watts))"},
            ),
            (
                "Clock events (bit mask)",
                "timeseries",
                "none",
                4,
                {"{{node}} GPU {{gpu}}": "max by (node, gpu) (ranklift_node_gpu_clock_events) > 0"},
            ),
        ),
    ),
    (
        "Ranks of $job",
        (
            ("Processors", "timeseries", "none", 8, {"rank {{rank}}": f"ranklift_rank_cpu_ratio{_OF}"}),
            ("Memory", "timeseries", "bytes", 8, {"rank {{rank}}": f"ranklift_rank_memory_bytes{_OF}"}),
            (
                "Silence, the ten longest",
                "timeseries",
                "s",
                8,
                {"rank {{rank}} on {{node}}": f"topk(10, ranklift_rank_silent_seconds{_OF})"},
            ),
        ),
    ),
)


def make_dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, entries in _ROWS:
        panels.append(
            {
                "type": "row",
                "title": row,
                "collapsed": False,
                "panels": [],
                "gridPos": _place(0, y, _COLUMNS, 1),
            }
        )
        x, y, height = 0, y + 1, 0
        for title, kind, unit, width, targets in entries:
            if x + width > _COLUMNS:
                x, y, height = 0, y + height, 0
            height = max(height, 4 if kind == "stat" else 8)
            panels.append(_panel(title, kind, unit, _place(x, y, width, 4 if kind == "stat" else 8), targets))
            x += width
        y += height
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "title": "Ranklift cluster",
        "uid": "ranklift-cluster",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "tags": ["ranklift"],
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_variable(), _job_variable()]},
        "panels": panels,
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(
    title: str, kind: str, unit: str, place: dict[str, int], targets: dict[str, str]
) -> dict[str, Any]:
    bounds = {"min": 0, "max": 1} if unit == "percentunit" else {}
    # A query of the time range would still show, as its last value, a state that is over.
    moment = {"instant": True, "range": False} if kind == "stat" else {}
    made: dict[str, Any] = {
        "type": kind,
        "title": title,
        "description": _description(targets.values()),
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, **bounds}, "overrides": []},
        "targets": [
            {
                "refId": "ABCDEFGH"[number],
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
                **moment,
            }
            for number, (legend, query) in enumerate(targets.items())
        ],
    }
    if kind == "stat":
        made["options"] = {
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "values": False},
            "textMode": "name" if title == "State" else "auto",
        }
    return made


def _description(asked: Iterable[str]) -> str:
    """The help texts of the metrics that these queries ask for."""
    texts = {family.name: family.help for family in FAMILIES}
    return " ".join(dict.fromkeys(texts[name] for query in asked for name in _NAME.findall(query)))


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _job_variable() -> dict[str, Any]:
    query = "label_values(ranklift_job_info, job_id)"
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "job"},
        "refresh": 2,
        "sort": 2,
        "includeAll": True,
        "allValue": ".+",
        "multi": False,
    }


def queries(dashboard: dict[str, Any]) -> list[str]:
    """Every query of the panels."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def metrics_of(dashboard: dict[str, Any]) -> set[str]:
    """Names of all metrics that a dashboard asks for, by panels and variables."""
    return set(_NAME.findall(" ".join(_texts(dashboard))))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name in ("expr", "query", "definition"):
                yield str(item)
            else:
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
