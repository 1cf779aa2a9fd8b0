"""Spot nodes that Azure takes back under running jobs: who is told, when, and what goes on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.workplace import Ran, Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK = "rehearsal"
NOTICE_S = 30.0
SCRIPT = """\
trap 'echo "terminated $(date +%s.%N)"; exit 0' TERM
echo up
while :; do sleep 0.2; done
"""
LAUNCHES = {
    "mpi": ("launch.mpi", "bash train.sh", "--nproc-per-node", "1"),
    "pytorch": ("launch.torch", "bash train.sh", "--per-node"),
}


@pytest.fixture
def cluster(workplace: Workplace) -> Workplace:
    """Three spot nodes, whatever a test before left."""
    workplace.configure(STACK, nodeCount=3, spot="true")
    workplace.fab("up")
    (workplace.own / "train.sh").write_text(SCRIPT)
    return workplace


@contextmanager
def running(cluster: Workplace, *words: str) -> Iterator[str]:
    """A job of which each rank has printed that it is up; gives its id."""
    launched = cluster.fab(*words, "--detach", "--name", "long")
    found = re.search(r"long-\d{8}-\d{6}-\w{4}", launched.out + launched.err)
    assert found is not None, launched
    deadline = time.monotonic() + 60
    while cluster.fab("logs", found[0]).out.count("] up") < 3:
        assert time.monotonic() < deadline, cluster.fab("job", found[0], status=None)
    try:
        yield found[0]
    finally:
        cluster.fab("cancel", found[0], "--grace", "0", status=None)


def numbers(cluster: Workplace) -> list[int]:
    return [row["id"] for row in cluster.fab("status", "--json", status=None).json()]


def evict(cluster: Workplace, nodes: str) -> float:
    """The nodes get the notice of their end; gives the time at which they will be gone."""
    gone = time.time() + NOTICE_S
    cluster.fab("rehearsal.fault", "evict", "--nodes", nodes)
    return gone


def terminated_at(ran: Ran) -> list[float]:
    """When the ranks got their SIGTERM."""
    return [float(text) for text in re.findall(r"terminated (\d+\.\d+)", ran.out)]


def wait_until_gone(cluster: Workplace, *gone: int) -> None:
    deadline = time.monotonic() + 2 * NOTICE_S
    while set(gone) & set(numbers(cluster)):
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.for_every_change] * (kind == "pytorch")) for kind in LAUNCHES],
)
def test_a_job_ends_in_time_and_names_the_node_and_runs_again_once_there_is_another(
    cluster: Workplace, kind: str
) -> None:
    first, middle, _ = numbers(cluster)
    with running(cluster, *LAUNCHES[kind]) as job:
        gone = evict(cluster, str(middle))
        ended = cluster.fab("wait", job, status=255)
        assert time.time() < gone
        assert f"job {job} FAILED: node" in ended.err
        shown = cluster.fab("job", job).out
        assert re.search(r"FAILED: node\S+ will be taken by Azure at \d\d:\d\d:\d\d UTC \(Preempt\)", shown)
        moments = terminated_at(cluster.fab("logs", job))
        assert len(moments) == 3
        assert max(moments) < gone - 20
        assert max(moments) - min(moments) < 2
    states = [row["state"] for row in cluster.fab("status", "--json").json()]
    assert sum("will be taken by Azure at" in state for state in states) == 1

    refused = cluster.fab(*LAUNCHES[kind], status=None)
    assert refused.status == 255
    assert "no rank was started: node" in refused.err
    assert "will be taken by Azure at" in refused.err

    wait_until_gone(cluster, middle)
    cluster.fab("up")
    there = numbers(cluster)
    assert (len(there), middle in there, first in there) == (3, False, True)
    with running(cluster, *LAUNCHES[kind]) as again:
        assert cluster.fab("job", again, "--json").json()["state"]["state"] == "RUNNING"


def test_all_nodes_at_once(cluster: Workplace) -> None:
    there = numbers(cluster)
    with running(cluster, *LAUNCHES["pytorch"]) as job:
        gone = evict(cluster, ",".join(map(str, there)))
        ended = cluster.fab("wait", job, status=255)
        assert "will be taken by Azure at" in ended.err
        moments = terminated_at(cluster.fab("logs", job))
        assert len(moments) == 3
        assert max(moments) < gone - 20
    wait_until_gone(cluster, *there)
    assert numbers(cluster) == []
    cluster.fab("up")
    assert not set(numbers(cluster)) & set(there)
