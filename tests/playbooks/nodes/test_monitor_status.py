"""What `fab status` has of Azure Monitor: from the metrics that each node serves."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.inventory import Inventory, Node
from launch.errors import GiveUpError, RankliftError
from launch.remote.metrics.exposition import exposition
from playbooks.nodes import monitor_status
from playbooks.nodes.monitor_status import Sending, monitor_lines, read_sending
from playbooks.project import Stack
from tests.launch.remote.metrics.known_heads import sending

NODES = tuple(Node(f"node00000{n}", n, f"10.0.0.{4 + n}", "", 0, 8, "running") for n in range(4))
INVENTORY = Inventory("dev", "size", "place", "me", NODES)
BOTH = '  ranklift:metricsPort: "9500"\n  ranklift:monitor: "true"\n'
Answers = Mapping[str, Sending | RankliftError | None]


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    (tmp_path / "Pulumi.dev.yaml").write_text(f"config:\n{BOTH}")
    return Stack("dev", tmp_path, {})


def lines(stack: Stack, monkeypatch: pytest.MonkeyPatch, answers: Answers) -> list[str]:
    monkeypatch.setattr(monitor_status, "_ask", lambda *_: answers)
    return monitor_lines(stack, INVENTORY, [node for node in NODES if node.name in answers])


def test_nodes_whose_metrics_are_taken_share_a_line(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {node.name: Sending(accepted=True, age_s=10.0 + node.instance_id) for node in NODES}
    assert lines(stack, monkeypatch, answers) == [
        "Azure Monitor workspace ranklift-dev: node[000000-000003]: metrics were taken within the last 13.0 s"
    ]


def test_each_other_state_has_its_own(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Answers = {
        "node000000": Sending(accepted=False, age_s=200.0),
        "node000001": Sending(accepted=False, age_s=None),
        "node000002": None,
        "node000003": GiveUpError("http://10.0.0.7:9500/metrics is not served: refused"),
    }
    found = lines(stack, monkeypatch, answers)
    why = "`fab exec 'sudo journalctl -u ranklift-metrics -n 20'` shows why"
    soon = "nodes begin within a minute of the setting, after their first push"
    refused = "http://10.0.0.7:9500/metrics is not served: refused"
    assert [line.removeprefix("Azure Monitor workspace ranklift-dev: ") for line in found] == [
        f"node000000: the last metrics were not taken (others were, up to 200.0 s ago): {why}",
        f"node000001: the last metrics were not taken (none were since the node's service started): {why}",
        f"node000002: no metrics are sent yet: {soon}",
        f"node000003: whether metrics are sent is unknown: {refused}",
    ]


def test_nodes_whose_metrics_are_not_taken_share_a_line_too(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {node.name: Sending(accepted=False, age_s=70.0 + node.instance_id) for node in NODES}
    (line,) = lines(stack, monkeypatch, answers)
    assert "node[000000-000003]: the last metrics were not taken (others were, up to 73.0 s ago)" in line


def test_without_a_ready_node_there_is_none_to_send(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(stack, monkeypatch, {}) == [
        "Azure Monitor workspace ranklift-dev: no node is ready to send metrics"
    ]


@pytest.mark.parametrize(
    "settings",
    [
        None,
        "{}",
        '  ranklift:metricsPort: "9500"\n',
        BOTH.replace("true", "false"),
        BOTH.replace("true", "maybe"),
        BOTH.replace("9500", "many"),
        '  ranklift:monitor: "true"\n',
    ],
)
def test_a_stack_that_sends_nothing_has_no_line_and_is_not_asked(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, settings: str | None
) -> None:
    stack.configuration.unlink()
    if settings is not None:
        stack.configuration.write_text(f"config:\n{settings}" if settings != "{}" else "{}")
    monkeypatch.setattr(monitor_status, "_ask", lambda *_: pytest.fail("a node was asked"))
    assert monitor_lines(stack, INVENTORY, NODES) == []


@pytest.mark.parametrize(
    "text", ["", "now 5\n", "ranklift_monitor_up 1\n", "now x\nranklift_monitor_up 1\n", "\x1b[2J"]
)
def test_an_answer_without_both_figures_is_none(text: str) -> None:
    assert read_sending(text) is None


@pytest.fixture
def served() -> Iterator[int]:
    """The port of a node's page."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = exposition([], sending=sending(last_sent=time.time() - 20)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(10)


def run(port: int) -> subprocess.CompletedProcess[str]:
    """The program as a node runs it."""
    argv = [sys.executable, "-I", "-S", "-c", monitor_status._PROGRAM, "127.0.0.1", str(port)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


def test_a_node_reads_its_own_page(served: int) -> None:
    found = read_sending(run(served).stdout)
    assert found is not None
    assert found.accepted
    assert found.age_s == pytest.approx(20, abs=5)


def test_a_page_that_is_not_served_is_named() -> None:
    done = run(1)
    assert done.returncode == 1
    assert done.stderr.startswith("http://127.0.0.1:1/metrics is not served: ")
