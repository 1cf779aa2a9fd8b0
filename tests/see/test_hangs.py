"""Jobs that hang on rehearsed nodes: `fab debug` and --hang-after name the rank that the others wait for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.workplace import Workplace
from tests.see.hanging import GLOO, MPI
from tests.see.running_jobs import until

pytestmark = [pytest.mark.see, pytest.mark.timeout(600)]

NODES = 4
KINDS = {
    "missing": "missing-rank",
    "mismatch": "mismatched-collective",
    "stopped": "stopped",
    "slow": "slow",
}
SCRIPTS = {"launch.torch": GLOO, "launch.mpi": MPI}


@contextmanager
def hanging(cluster: Workplace, task: str, way: str, culprit: int, per_node: int) -> Iterator[str]:
    """A job whose ranks have all said that they are ready, one of which misbehaves."""
    (cluster.own / "hang.py").write_text(SCRIPTS[task])
    words = ("--nproc-per-node", str(per_node), "--detach")
    job = cluster.fab(task, f"hang.py {way} {culprit}", *words).out.strip()
    try:
        until(lambda: ready(cluster, job) == NODES * per_node, 300)
        time.sleep(1)
        yield job
    finally:
        cluster.fab("cancel", job, "--grace", "1s", status=None)


def ready(cluster: Workplace, job: str) -> int:
    ran = cluster.run("bash", "-c", f"timeout 4 fab logs {job} --tail 400", status=None)
    return ran.out.count("ready")


def debugged(cluster: Workplace, job: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.fab("debug", job, "--json").json()
    return found


@pytest.mark.parametrize("task", SCRIPTS)
@pytest.mark.parametrize("way", KINDS)
def test_the_rank_at_fault_is_named(cluster: Workplace, task: str, way: str) -> None:
    with hanging(cluster, task, way, culprit=6, per_node=4) as job:
        found = debugged(cluster, job)
    assert (found["kind"], found["ranks_at_fault"]) == (KINDS[way], [6]), json.dumps(found, indent=1)[:4000]
    assert found["nodes_at_fault"] == ["node000001"]
    assert len(found["ranks"]) == NODES * 4
    assert found["seconds"] < 10


@pytest.mark.for_every_change
def test_a_silent_job_is_ended_with_the_verdict_as_its_reason(cluster: Workplace) -> None:
    (cluster.own / "hang.py").write_text(GLOO)
    words = ("--nproc-per-node", "1", "--hang-after", "4s")
    ran = cluster.fab("launch.torch", "hang.py missing 2", *words, status=124)
    assert "3 ranks wait in all_reduce at hang.py:18; rank 2 on node000002 is in load_batch" in ran.err
    job = cluster.fab("jobs", "--json").json()[-1]["job"]
    report = cluster.fab("job", job, "--json").json()
    assert report["state"]["reason"].startswith("no rank has printed anything for ")
    assert report["state"]["failure"]["rank"] == 2
    assert cluster.fab("debug", job, "--json").json()["ranks_at_fault"] == [2]


def test_a_silent_job_that_moves_is_not_ended(cluster: Workplace) -> None:
    (cluster.own / "hang.py").write_text(GLOO)
    words = ("--nproc-per-node", "1", "--hang-after", "4s", "--timeout", "25s")
    ran = cluster.fab("launch.torch", "hang.py slow 2", *words, status=124)
    assert "its time limit of 25 s was reached" in ran.err
    assert "slow and not stuck" in ran.out + ran.err
