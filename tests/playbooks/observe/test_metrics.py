"""The metrics of a cluster, gathered over ssh."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.inventory import load
from infra.preflight.usage import Account, Thing
from launch.errors import GiveUpError
from playbooks.observe import cluster_metrics
from playbooks.observe.cluster_metrics import ClusterMetrics, cost_so_far
from playbooks.observe.metrics import _token
from playbooks.project import Stack
from playbooks.stack import account
from tests.launch.remote.sample_records import sample_state
from tests.playbooks.server import SshServer, free_port, save_stack
from tests.playbooks.typed import FAB, ROOT, fab, write_project

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A node whose job ended just now."""
    with SshServer(tmp_path_factory.mktemp("sshd")) as running:
        own = running.folder / "home" / ".ranklift"
        (own / "remote").mkdir(parents=True)
        (own / "remote" / "0123456789ab").symlink_to(ROOT / "launch" / "remote")
        job = own / "jobs" / "train-1"
        job.mkdir(parents=True)
        state = sample_state("train-1", state="FAILED", exit_status=9, ended=datetime.now(UTC).timestamp())
        (job / "state.json").write_text(json.dumps(state))
        yield running


@pytest.fixture
def project(server: SshServer, tmp_path: Path) -> Path:
    """A project whose stack has that node and, as instance 1, one that does not answer."""
    write_project(tmp_path, "dev", fabfile=True)
    ports = {0: server.port, 1: free_port()}
    save_stack(tmp_path / ".ranklift" / "dev", ports, server.host_key, server.user_key)
    return tmp_path


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> None:
    created = datetime.now(UTC) - timedelta(hours=3)
    nodes = Thing(id="n", type="t", name="n", group="g", stack="dev", created=created, per_hour=40.0)
    monkeypatch.setattr(account, "query_account", lambda *_: Account("s", "dev", (nodes,)))


def thing(hours: float | None, per_hour: float | None, stack: str | None = "dev") -> Thing:
    created = None if hours is None else NOW - timedelta(hours=hours)
    return Thing(id="i", type="t", name="n", group="g", stack=stack, created=created, per_hour=per_hour)


def test_the_cost_so_far_is_that_of_what_exists_and_is_known() -> None:
    things = (thing(10, 4.0), thing(2, 0.05), thing(None, 1.0), thing(5, None), thing(5, 9.0, stack=None))
    assert cost_so_far(Account("s", "dev", things), NOW) == pytest.approx((5.05, 40.1))


@pytest.mark.usefixtures("priced")
def test_heads_that_answer_and_the_account_are_one_text(project: Path) -> None:
    reports: list[str] = []
    made = ClusterMetrics(Stack("dev", project, {}), reports.append)
    try:
        lines = made.text().splitlines()
    finally:
        made.close()
    assert 'ranklift_job_state{job_id="train-1",state="failed"} 1' in lines
    assert 'ranklift_cluster_node_up{node="node000000"} 1' in lines
    assert 'ranklift_cluster_node_up{node="node000001"} 0' in lines
    assert "ranklift_cluster_nodes 2" in lines
    assert "ranklift_cluster_price_usd_per_hour 40" in lines
    (cost,) = [float(line.split()[1]) for line in lines if line.startswith("ranklift_cluster_cost_usd ")]
    assert cost == pytest.approx(120, abs=0.5)
    assert set(made.failure.errors) == {"node000001"} if made.failure else False
    assert reports == [str(made.failure)]


@pytest.mark.usefixtures("priced")
def test_a_job_that_another_head_has_by_the_note_here_is_left_out_and_named(project: Path) -> None:
    stack = Stack("dev", project, {})
    stack.jobs.mkdir()
    (stack.jobs / "train-1.json").write_text(json.dumps({"head": "node000001"}))
    reports: list[str] = []
    made = ClusterMetrics(stack, reports.append)
    try:
        text = made.text()
    finally:
        made.close()
    assert "train-1" not in text
    expected = "node000000: left out, since they are another head's jobs: train-1 (of node000001)"
    assert expected in reports


@pytest.mark.usefixtures("priced")
def test_a_node_is_not_asked_again_while_its_answer_is_read(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, goes_on = threading.Semaphore(0), threading.Event()

    def slow(*_: object, **__: object) -> None:
        asked.release()
        assert goes_on.wait(60)

    monkeypatch.setattr(cluster_metrics, "ask", slow)
    monkeypatch.setattr(cluster_metrics, "_NODE_S", 2.0)
    monkeypatch.setattr(cluster_metrics, "FRESH_S", 0.0)
    reports: list[str] = []
    made = ClusterMetrics(Stack("dev", project, {}), reports.append)
    try:
        for _ in range(3):
            assert 'ranklift_cluster_node_up{node="node000000"} 0' in made.text().splitlines()
        assert asked.acquire(timeout=1)
        assert not asked.acquire(blocking=False)
        assert any("node000000: its answer to the query before is not read yet" in one for one in reports)
    finally:
        goes_on.set()
        made.close()


@pytest.mark.usefixtures("priced")
def test_a_long_answer_is_not_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metrics, "_ANSWER_BYTES", 100)
    made = ClusterMetrics(Stack("dev", project, {}), lambda _: None)
    try:
        assert "train-1" not in made.text()
    finally:
        made.close()
    assert made.failure is not None
    assert "bytes, at most 100 are read" in str(made.failure.errors["node000000"])


def test_a_text_is_used_again_and_a_silent_node_reported_once(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> Account:
        raise GiveUpError("no one is signed in")

    monkeypatch.setattr(account, "query_account", unknown)
    reports: list[str] = []
    made = ClusterMetrics(Stack("dev", project, {}), reports.append)
    try:
        first = made.text()
        assert "usd" not in first
        assert made.text() is first
        monkeypatch.setattr(cluster_metrics, "FRESH_S", 0.0)
        assert made.text() is not first
    finally:
        made.close()
    assert sorted(reports) == [str(made.failure), "the cost so far is unknown: no one is signed in"]


def test_an_account_that_azure_is_slow_to_give_holds_up_no_scrape(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def slow(*_: object) -> Account:
        asked.set()
        assert answers.wait(60)
        return Account("s", "dev", (thing(10, 4.0),))

    monkeypatch.setattr(account, "query_account", slow)
    monkeypatch.setattr(cluster_metrics, "FRESH_S", 0.0)
    made = ClusterMetrics(Stack("dev", project, {}), lambda _: None)
    try:
        first = made.text(cost_wait_s=0.0)
        assert asked.is_set()
        assert "ranklift_cluster_nodes 2" in first
        assert "usd" not in first
        answers.set()
        assert "ranklift_cluster_price_usd_per_hour 4\n" in made.text(cost_wait_s=None)
    finally:
        answers.set()
        made.close()


@pytest.mark.usefixtures("priced")
def test_nodes_that_come_later_are_asked(
    server: SshServer, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_metrics, "FRESH_S", 0.0)
    made = ClusterMetrics(Stack("dev", project, {}), lambda _: None)
    try:
        assert "ranklift_cluster_nodes 2" in made.text()
        folder = project / ".ranklift" / "dev"
        save_stack(folder, {0: server.port}, server.host_key, server.user_key)
        assert "ranklift_cluster_nodes 1" in made.text()
        assert made.failure is None
    finally:
        made.close()
    assert len(load(folder).nodes) == 1


@pytest.mark.usefixtures("priced")
def test_an_answer_that_is_none_is_its_nodes_fault(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metrics, "ask", lambda *_, **__: {"now": 1.0, "jobs": [{"job": 7}]})
    made = ClusterMetrics(Stack("dev", project, {}), lambda _: None)
    try:
        assert 'ranklift_cluster_node_up{node="node000000"} 0' in made.text()
    finally:
        made.close()
    assert "its answer is not one of metrics" in str(made.failure)


@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize(
    "forged",
    [{"exit_status": 10**30}, {"restarts": -1}, {"ranks": -1}],
    ids=["status", "restarts", "ranks"],
)
def test_a_job_that_forges_its_records_hides_no_other(
    server: SshServer, project: Path, forged: dict[str, object]
) -> None:
    job = server.folder / "home" / ".ranklift" / "jobs" / "forged-1"
    job.mkdir()
    state = sample_state("forged-1", state="FAILED", exit_status=9, ended=datetime.now(UTC).timestamp())
    (job / "state.json").write_text(json.dumps({**state, **forged}))
    reports: list[str] = []
    made = ClusterMetrics(Stack("dev", project, {}), reports.append)
    try:
        text = made.text()
    finally:
        made.close()
        shutil.rmtree(job)
    assert 'ranklift_job_state{job_id="train-1",state="failed"} 1\n' in text
    assert "forged-1" not in text
    assert [one for one in reports if "node000000: a job whose records are damaged is left out" in one]


def test_once_prints_what_is_known_and_ends_with_the_error_of_silent_nodes(project: Path) -> None:
    ran = fab(project, "metrics", "--once")
    assert ran.returncode == 1
    assert 'ranklift_job_exit_status{job_id="train-1"} 9\n' in ran.stdout
    assert "error: reading metrics failed on 1 of 2 nodes\nnode000001: " in ran.stderr


def test_a_port_that_is_taken_is_refused_by_number_before_anything_is_asked(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = fab(project, "metrics", "--port", str(port))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"error: --port = {port}: cannot be served at 127.0.0.1: Address already in use; "
        "give another --port, or end what has this one\n"
    )


@pytest.mark.parametrize(
    ("port", "problem"),
    [
        ("0", "0: must be at least 1"),
        ("65536", "65536: must be at most 65535"),
        ("http", "'http': is not a port"),
        ("-1", "-1: must be at least 1"),
    ],
)
def test_what_is_not_a_port_is_refused(project: Path, port: str, problem: str) -> None:
    ran = fab(project, "metrics", f"--port={port}")
    assert ran.returncode == 2
    assert ran.stderr == f"error: --port = {problem}; give a port from 1 to 65535\n"


@contextmanager
def serving(project: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """``fab metrics``, until it is ended by Ctrl-C."""
    with subprocess.Popen(
        [FAB, "metrics", "--port", str(port)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.send_signal(signal.SIGINT)
            _, rest = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in rest


def status_of(port: int, **headers: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_it_serves_under_its_own_address_to_who_has_the_token_until_ctrl_c(project: Path) -> None:
    port, file = free_port(), project / ".ranklift/dev/metrics-token"
    with serving(project, port) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == (
            f"serving http://127.0.0.1:{port}/metrics until Ctrl-C, "
            f"to requests with the bearer token in {file}\n"
        )
        assert file.stat().st_mode & 0o777 == 0o600
        token = {"Authorization": f"Bearer {file.read_text().strip()}"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=token)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert b'ranklift_job_state{job_id="train-1",state="failed"} 1\n' in answer.read()
        assert status_of(port) == 401
        assert status_of(port, Authorization="Bearer guessed") == 401
        assert status_of(port, Host=f"evil.example:{port}", **token) == 403


def test_the_token_is_kept_for_the_next_time_and_closed_to_others(project: Path) -> None:
    port, file = free_port(), project / ".ranklift/dev/metrics-token"
    with serving(project, port) as running:
        assert running.stderr is not None
        running.stderr.readline()
    first = file.read_text()
    file.chmod(0o644)
    with serving(project, port) as running:
        assert running.stderr is not None
        running.stderr.readline()
        assert status_of(port, Authorization=f"Bearer {first.strip()}") == 200
    assert (file.read_text(), file.stat().st_mode & 0o777) == (first, 0o600)


@pytest.mark.parametrize("text", ["", "short\n", "x" * 42, "two words " * 9])
def test_what_is_no_token_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics-token").write_text(text)
    made = _token(tmp_path / "metrics-token")
    assert len(made) == 43
    assert (tmp_path / "metrics-token").read_text() == f"{made}\n"
