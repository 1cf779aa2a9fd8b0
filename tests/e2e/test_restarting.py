"""Failures that do not end a job, on real nodes: launched anew, and torchrun going on without a lost node."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.e2e.workplace import LIMIT_S, Workplace

pytestmark = pytest.mark.timeout(1200)

OTHER = "rehearsal-elastic"
AGAIN = """\
import os, sys, time
launch = os.environ["RANKLIFT_RESTART_COUNT"]
print("launch", launch, flush=True)
if launch == "0":
    if os.environ["RANK"] == "1":
        sys.exit(3)
    time.sleep(600)
"""
STEPS = """\
import datetime, os, time, torch, torch.distributed as dist
if os.environ["RANK"] == "0" and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
    time.sleep(3)  # the other looks for an address of rank 0 before there is a new one
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
rank, world = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of {world}", flush=True)
for _ in range(600 if world == 3 else 5):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.1)
print(f"rank {rank} of {world} is done", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def code(cluster: Workplace) -> Workplace:
    (cluster.own / "again").mkdir()
    (cluster.own / "again" / "again.py").write_text(AGAIN)
    (cluster.own / "again" / "steps.py").write_text(STEPS)
    return cluster


@pytest.fixture
def three(code: Workplace) -> Iterator[Workplace]:
    """A stack of three nodes, of which one may die."""
    code.configure(OTHER, nodeCount=3, vnetPrefix="10.2.0.0/16")
    code.fab("up", "--stack", OTHER)
    yield code
    code.fab("down", "--stack", OTHER, "--yes")


@pytest.mark.parametrize("kind", ["mpi", "torch"])
def test_a_rank_that_fails_once_costs_one_restart(code: Workplace, kind: str) -> None:
    line = (f"launch.{kind}", "again.py", "--source", "again", "--nodes", "0-1", "--max-restarts", "2")
    ran = code.fab(*line, "--json")
    state = ran.json()
    assert (state["state"], state["restarts"], state["exit_status"]) == ("SUCCEEDED", 1, 0)
    assert "restart 1 of 2: rank 1 on node000001 ended with exit status 3" in ran.err
    assert sorted(re.findall(r"^\[(\d) \S+\] launch (\d)$", ran.err, re.MULTILINE)) == [
        (rank, launch) for rank in "01" for launch in "01"
    ]
    result = code.fab("job", state["job"]).out
    assert "restarts  1 of 2" in result
    assert "rank 1 on node000001 failed with 3" in result


def test_restarts_come_from_a_job_file_too_and_have_an_end(code: Workplace) -> None:
    (code.own / "again" / "job.yml").write_text(
        "command: exit $((RANKLIFT_RESTART_COUNT + 3))\nranklift: {max_restarts: 1}\n"
    )
    ran = code.fab("launch", "again/job.yml", status=4)
    assert (
        "ended with exit status 4 (in restart 1 of 1; the first failure was: rank 0 on node000000" in ran.err
    )


def test_torchrun_goes_on_without_a_node_that_died(three: Workplace) -> None:
    words = ("steps.py", "--source", "again", "--torchrun", "--nnodes", "2:3", "--max-restarts", "3")
    with three.begin("launch.torch", *words, "--stack", OTHER) as process:
        assert process.stdout is not None
        shown = ""
        until = time.monotonic() + LIMIT_S
        while shown.count(" of 3\n") < 3:
            line = process.stdout.readline()
            assert line, shown
            assert time.monotonic() < until, shown
            shown += line
        three.fab("rehearsal.fault", "death", "--nodes", "2", "--stack", OTHER)
        shown += process.stdout.read()
        assert process.wait(LIMIT_S) == 0, shown
    assert "node000002 is lost: no sign of life for 12 s; continuing on 2 nodes (needed: 2)" in shown
    assert "RUNNING: continues without node000002" in shown
    assert re.search(r"SUCCEEDED: without node000002, lost before$", shown, re.MULTILINE)
    assert {rank for rank in "01" if f"rank {rank} of 2 is done" in shown} == {"0", "1"}
