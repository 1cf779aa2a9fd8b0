"""Metrics as Prometheus sees them: its promtool, its server, and its node exporter's figures beside ours."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workplace import LIMIT_S, Workplace
from tests.launch.remote.metrics.dashboard import DASHBOARD, queries
from tests.playbooks.server import free_port
from tests.see.conftest import METRICS_PORT, NODES
from tests.see.running_jobs import running_job, until

pytestmark = [pytest.mark.see, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
HELD = 400 << 20
"""Bytes that each rank of :data:`HOLD` holds."""
TRAIN = """\
import time
for step in range(1, 100_000):
    print(f"step {step}: loss: {2.5 / step:.4f} ({100.5:.1f} samples/s)", flush=True)
    time.sleep(0.5)
"""
HOLD = f"held = b'x' * {HELD}\n{TRAIN}"


def on_node(workplace: Workplace, node: str, script: str, *words: str) -> Any:
    """What a script of this folder prints on a node, over plain ssh."""
    config = workplace.folder.root.parent / "rehearsal" / "ssh_config"
    quoted = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(
        ["ssh", "-F", str(config), node, f"python3 - {quoted}"],
        input=(HERE / script).read_text(),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def checked(text: str) -> str:
    """The text, which Prometheus' own linter has nothing against."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return text


@pytest.mark.for_every_change
def test_a_running_job_is_in_the_metrics_that_promtool_accepts(cluster: Workplace) -> None:
    with running_job(cluster, "--nproc-per-node", "2", script=TRAIN) as job:
        until(lambda: 'metric="step"' in cluster.fab("metrics", "--once").out)
        text = checked(cluster.fab("metrics", "--once").out)
        lines = text.splitlines()
        assert f'ranklift_job_state{{job_id="{job}",state="running"}} 1' in lines
        assert 'ranklift_queue_jobs{state="running"} 1' in lines
        assert f"ranklift_cluster_nodes {NODES}" in lines
        for family, count in {
            "ranklift_cluster_node_up": NODES,
            "ranklift_node_cpu_ratio": NODES,
            "ranklift_rank_memory_bytes": 2 * NODES,
            "ranklift_rank_silent_seconds": 2 * NODES,
            "ranklift_cluster_cost_usd": 1,
        }.items():
            assert sum(line.startswith((f"{family}{{", f"{family} ")) for line in lines) == count, family
        steps = [line for line in lines if line.startswith("ranklift_rank_metric") and '"step"' in line]
        assert len(steps) == 2 * NODES


def test_the_cost_of_a_job_is_the_same_on_its_head_and_here(cluster: Workplace) -> None:
    script = "import time; time.sleep(2)"
    with running_job(cluster, "--nproc-per-node", "1", script=script, state="SUCCEEDED") as job:
        state = cluster.fab("job", job, "--json").json()["state"]
    started, ended = (datetime.fromisoformat(state[name]) for name in ("started", "ended"))
    price = cluster.fab("plan", "--json").json()["costs"][0]["regular"] / NODES
    nodes = {node["name"]: node["private_ip"] for node in cluster.fab("status", "--json").json()}
    url = f"http://{nodes['node000000']}:{METRICS_PORT}/metrics"
    (cost,) = costs_of(job, cluster.fab("metrics", "--once").out)
    assert costs_of(job, on_node(cluster, "node000000", "page.py", url)) == [cost]
    assert cost == pytest.approx(price * NODES * (ended - started).total_seconds() / 3600, rel=1e-4)


def costs_of(job: str, text: str) -> list[float]:
    """What a text of metrics has as the job's cost."""
    start = f'ranklift_job_cost_usd{{job_id="{job}"}} '
    return [float(line.removeprefix(start)) for line in text.splitlines() if line.startswith(start)]


def test_a_prometheus_in_the_network_scrapes_every_node_and_answers(cluster: Workplace) -> None:
    nodes = cluster.fab("status", "--json").json()
    targets = ",".join(f"{node['private_ip']}:{METRICS_PORT}" for node in nodes)
    with running_job(cluster, "--nproc-per-node", "2", script=TRAIN) as job:
        until(lambda: "ranklift_node_gpu_utilisation_ratio{" in cluster.fab("metrics", "--once").out)
        wanted = {
            f'sum(up{{job="ranklift"}}) == {NODES}': [NODES],
            f"count(ranklift_node_cpu_ratio) == {NODES}": [NODES],
            f'min(ranklift_rank_metric{{metric="step",job_id="{job}"}}) > 0': None,
            f'count(ranklift_rank_running{{job_id="{job}"}} == 1) == {2 * NODES}': [2 * NODES],
            f'ranklift_job_state{{job_id="{job}"}}': [1],
        }
        folder = "/tmp/prometheus-of-the-test"
        found = on_node(cluster, "node000001", "scrape.py", folder, str(free_port()), targets, *wanted)
        for query, values in wanted.items():
            got = [float(one["value"][1]) for one in found[query]]
            assert got, f"{query}: no answer"
            assert values in (None, got), query
        panels = on_node(
            cluster, "node000001", "scrape.py", folder, str(free_port()), targets, *expected_panels(job)
        )
        assert [query for query, answer in panels.items() if not answer] == []


def expected_panels(job: str) -> list[str]:
    """The dashboard's queries that nodes answer: `fab metrics` alone has the cluster's cost and silent nodes,
    and these GPUs' clocks are not held down."""
    missing = ("_cluster_cost", "_cluster_price", "_cluster_node", "_gpu_clock_events")
    found = (query.replace("$job", job) for query in queries(json.loads(DASHBOARD.read_text())))
    return [query for query in found if not any(name in query for name in missing)]


def test_prometheus_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    found = queries(json.loads(DASHBOARD.read_text()))
    rules = [{"record": f"panel:{n}", "expr": query.replace("$job", ".+")} for n, query in enumerate(found)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(found)} rules found" in done.stdout


def test_figures_are_those_of_debians_node_exporter(cluster: Workplace) -> None:
    nodes = {node["name"]: node["private_ip"] for node in cluster.fab("status", "--json").json()}
    with running_job(cluster, "--nproc-per-node", "1", script=HOLD):
        until(lambda: 'metric="step"' in cluster.fab("metrics", "--once").out)
        own = f"{nodes['node000000']}:{METRICS_PORT}"
        found = on_node(
            cluster, "node000000", "compare.py", str(free_port()), own, "node000000", nodes["node000001"]
        )
    ours, theirs = found["ours"], found["theirs"]
    assert found["samples"] >= 8
    assert ours["memory_size"] == theirs["memory_size"]
    assert HELD < theirs["memory"] < 2 * HELD, found
    assert ours["memory"] == pytest.approx(theirs["memory"], rel=0.05), found
    assert ours["cpu"] == pytest.approx(theirs["cpu"], abs=0.15), found
    assert theirs["sent"] > 1_000_000, found
    assert ours["sent"] == pytest.approx(theirs["sent"], rel=0.15), found
    assert ours["received"] == pytest.approx(theirs["received"], rel=0.3, abs=20_000), found


def test_it_is_served_until_ctrl_c_and_a_node_that_is_cut_off_is_down(healed: Workplace) -> None:
    port = free_port()
    with healed.begin("metrics", "--port", str(port)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith(
            f"serving http://127.0.0.1:{port}/metrics until Ctrl-C, to requests with the "
        )
        token = Path(first.rpartition(" token in ")[2].strip()).read_text().strip()
        page = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
        )

        def text() -> str:
            with urllib.request.urlopen(page, timeout=60) as answer:
                return str(answer.read().decode())

        assert 'ranklift_cluster_node_up{node="node000003"} 1' in checked(text())
        healed.fab("rehearsal.fault", "partition", "--nodes", "3")
        until(lambda: 'ranklift_cluster_node_up{node="node000003"} 0' in text())
