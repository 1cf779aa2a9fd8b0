"""Metrics on their way to Azure Monitor: as Debian's Prometheus takes them, and on rehearsed nodes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from launch.remote.metrics.exposition import exposition, samples
from launch.remote.metrics.remote_write import HEADERS, STALE, encode_requests, labels_of, snappy_block
from tests.e2e.workplace import Workplace
from tests.launch.remote.metrics.known_heads import cluster as facts
from tests.launch.remote.metrics.known_heads import gpu, head, job, node, rank, sending
from tests.launch.remote.metrics.test_exposition import series
from tests.see.conftest import METRICS_PORT, NODES
from tests.see.receive import receiver
from tests.see.running_jobs import running_job, until

pytestmark = [pytest.mark.see, pytest.mark.timeout(600)]

GROUP = "resourceGroups/ranklift-rehearsal/providers"
WORKSPACE = f"{GROUP}/Microsoft.Monitor/accounts/ranklift-rehearsal"
RULE = f"{GROUP}/Microsoft.Insights/dataCollectionRules/ranklift-rehearsal"
ASSIGNMENTS = f"{RULE}/providers/Microsoft.Authorization/roleAssignments"


@pytest.mark.for_every_change
def test_prometheus_takes_what_a_node_sends(tmp_path: Path) -> None:
    labels = {"node000000": node(gpus=[gpu(0), gpu(1)])}
    ranks = {"0": rank(metrics={"loss": math.nan, "grad": math.inf, 'a "b"\n\\ö': -0.5})}
    given = ([head(job(live_nodes=labels, live_ranks=ranks))], facts(), sending())
    now = time.time()
    wanted = {
        (name, tuple(sorted(pairs)), value if math.isfinite(value) else str(value))
        for name, pairs, value in samples(*given)
    }
    assert len(wanted) == len(series(exposition(*given)))
    made = [(labels_of(name, pairs), value) for name, pairs, value in samples(*given)]
    with receiver(tmp_path) as prometheus:
        for body, _ in encode_requests(made, int(now * 1000)):
            assert prometheus.write(body, HEADERS) == (204, "")
        found = prometheus.query('{__name__=~"ranklift_.+"}', now)
        assert {read(one) for one in found} == wanted
        ended = [(labels_of("ranklift_queue_jobs", [("state", "queued")]), STALE)]
        for body, _ in encode_requests(ended, int((now + 1) * 1000)):
            assert prometheus.write(body, HEADERS) == (204, "")
        left = prometheus.query("ranklift_queue_jobs", now + 2)
        assert sorted(one["metric"]["state"] for one in left) == ["running", "starting"]
        assert prometheus.write(snappy_block(b"\xff"), HEADERS)[0] == 400


def read(one: dict[str, Any]) -> tuple[str, tuple[tuple[str, str], ...], float | str]:
    """Name, labels and value of a series in Prometheus' answer."""
    pairs = dict(one["metric"])
    name = pairs.pop("__name__")
    value = float(one["value"][1])
    return name, tuple(sorted(pairs.items())), value if math.isfinite(value) else str(value)


Key = tuple[str, ...]
"""Name of a metric, and its labels in order."""


def arrived(workplace: Workplace) -> dict[Key, float]:
    """What the rehearsed workspace has."""
    found = {}
    for one in workplace.azure(f"/{WORKSPACE}/rehearsed-series")["value"]:
        pairs = dict(one["labels"])
        found[key_of(pairs.pop("__name__"), pairs)] = float(one["value"])
    return found


def served(workplace: Workplace, address: str) -> dict[Key, float]:
    """What the node at this address serves, with the labels that a scrape adds."""
    url = f"http://{address}:{METRICS_PORT}/metrics"
    text = on_node(
        workplace,
        f"python3 -c \"import urllib.request; print(urllib.request.urlopen('{url}').read().decode())\"",
    )
    found = {}
    for line in text.splitlines():
        name = re.match(r"ranklift_[a-z_]+", line)
        if name is not None:
            pairs = dict(re.findall(r'([a-z_]+)="([^"]*)"', line))
            pairs |= {"job": "ranklift", "instance": f"{address}:{METRICS_PORT}"}
            found[key_of(name[0], pairs)] = float(line.rpartition(" ")[2])
    return found


def key_of(name: str, pairs: dict[str, str]) -> Key:
    return name, *(f"{label}={value}" for label, value in sorted(pairs.items()))


def on_node(workplace: Workplace, command: str, node: str = "node000000") -> str:
    """What a command prints on a node, over plain ssh."""
    config = workplace.folder.root.parent / "rehearsal" / "ssh_config"
    return str(workplace.run("ssh", "-F", str(config), node, command).out)


def boots(workplace: Workplace, nodes: Iterable[str]) -> list[str]:
    """When each node's first process began."""
    return [on_node(workplace, "cut -d' ' -f22 /proc/1/stat", name) for name in nodes]


def made(workplace: Workplace) -> set[str]:
    """The types that the stack has of Azure Monitor."""
    found = workplace.azure("/resourceGroups/ranklift-rehearsal/resources")["value"]
    types = {one["type"] for one in found}
    return {one for one in types if one.lower().startswith(("microsoft.monitor", "microsoft.insights"))}


def test_it_is_turned_on_and_off_on_running_nodes(cluster: Workplace) -> None:
    nodes = {one["name"]: one["private_ip"] for one in cluster.fab("status", "--json").json()}
    before = boots(cluster, nodes)
    cluster.configure("rehearsal", nodeCount=NODES, metricsPort=METRICS_PORT, monitor="true")
    plan = cluster.fab("plan", "--stack", "rehearsal").out
    assert re.search(r"Azure Monitor workspace.*unknown", plan), plan
    cluster.fab("up", "--stack", "rehearsal")
    try:
        assert len(made(cluster)) == 3
        with running_job(cluster, "--nproc-per-node", "2") as name:
            wanted = {"ranklift_rank_metric", f"job_id={name}", "metric=step"}
            until(lambda: [key for key in arrived(cluster) if wanted <= set(key)], 150)
            until(lambda: len(instances(arrived(cluster))) == NODES, 90)
            check_it_is_what_the_nodes_serve(cluster, nodes)
        status = cluster.fab("status").out
        assert re.search(
            r"workspace ranklift-rehearsal: node\[000000-000003\]: metrics were taken within", status
        )
        check_a_node_without_the_role_says_so(cluster, nodes["node000000"])
    finally:
        cluster.configure("rehearsal", nodeCount=NODES, metricsPort=METRICS_PORT)
        cluster.fab("up", "--stack", "rehearsal")
    assert made(cluster) == set()
    assert boots(cluster, nodes) == before
    until(lambda: not any("monitor" in key[0] for key in served(cluster, nodes["node000000"])), 90)


def instances(found: dict[Key, float]) -> set[str]:
    return {one for key in found for one in key if one.startswith("instance=")}


def check_it_is_what_the_nodes_serve(cluster: Workplace, nodes: dict[str, str]) -> None:
    address = nodes["node000000"]
    own = f"instance={address}:{METRICS_PORT}"

    def both() -> tuple[dict[Key, float], dict[Key, float]]:
        """What the head serves, and what has arrived of it; its sending shows in these one after another."""
        found = served(cluster, address), {k: v for k, v in arrived(cluster).items() if own in k}
        page, kept = ({k: v for k, v in one.items() if "_monitor_" not in k[0]} for one in found)
        return page, kept

    # What a job's first seconds have not yet comes with the next minute.
    until(lambda: len({frozenset(one) for one in both()}) == 1, 90)
    page, kept = both()
    steady = ("_info", "_state", "_nodes", "_ranks", "_size_bytes", "_created_timestamp_seconds", "_jobs")
    same = [key for key in kept if key[0].endswith(steady)]
    assert len(same) > NODES
    assert {key: kept[key] for key in same} == {key: page[key] for key in same}
    assert instances(arrived(cluster)) == {f"instance={ip}:{METRICS_PORT}" for ip in nodes.values()}


def check_a_node_without_the_role_says_so(cluster: Workplace, address: str) -> None:
    (right,) = [
        one
        for one in cluster.azure(f"/{ASSIGNMENTS}")["value"]
        if "/datacollectionrules/" in one["id"].lower()
    ]
    cluster.ask("DELETE", right["id"], version="2022-04-01")

    def up() -> list[float]:
        page = served(cluster, address)
        return [value for key, value in page.items() if key[0] == "ranklift_monitor_up"]

    until(lambda: up() == [0.0], 90)
    printed = cluster.fab("status", status=1).out  # for the role, which is the stack's
    assert re.search(r"workspace ranklift-rehearsal: node\S+: the last metrics were not taken \(", printed)
    dropped = [v for key, v in served(cluster, address).items() if "samples_dropped" in key[0]]
    assert dropped[0] > 0
    kept = ("roleDefinitionId", "principalId", "principalType")
    body = {"properties": {name: right["properties"][name] for name in kept}}
    cluster.ask("PUT", right["id"], body, version="2022-04-01")
    until(lambda: up() == [1.0], 90)
