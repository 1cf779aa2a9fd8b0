"""``fab check --deep`` on nodes whose links are slow in truth: Linux lets no more through."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import IO, Any

import pytest

from launch.health.measurement import Measurement
from launch.health.pairs import MOST, STEADY, batches, judge_pairs
from tests.e2e.workplace import Workplace

pytestmark = pytest.mark.health

NODES, USUAL, SLOW = 6, 24, 6
"""Rates are MB per second, far below what the machine's processors could move."""
FIGURE = 18
"""What a ring reaches of ``USUAL`` at least, were a size to promise it."""


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Iterator[Workplace]:
    """Nodes without GPUs, for one file."""
    workplace.configure("rehearsal", vmSize="Standard_HB120rs_v3", nodeCount=NODES)
    workplace.fab("up", "--stack", "rehearsal")
    yield workplace
    workplace.fab("down", "--stack", "rehearsal", "--yes")


@pytest.fixture
def shaped(cluster: Workplace) -> Iterator[Workplace]:
    """That cluster; each node's link brings it the same."""
    cluster.fab("rehearsal.fault", "slow-link", "--nodes", "all", "--rate", str(USUAL))
    yield cluster
    cluster.fab("rehearsal.fault", "clear")


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {name: one["verdict"] for name, one in found["nodes"].items()}


def assert_rounds(rounds: list[list[dict[str, Any]]], slow: str) -> None:
    """All nodes are measured together, each pair once, and the healthy ones together.

    In between, what seemed slow is measured again, as the search promises: nodes up to seven times, and three
    times pairs of nodes that did not, as a busy machine makes them.
    """
    names = [f"node{number:06}" for number in range(NODES)]
    measured = [[Measurement(tuple(one["group"]), one["gbs"]) for one in groups] for groups in rounds]
    whole, pairs, (*again, rest) = measured[:1], measured[1:NODES], measured[NODES:]
    assert [one.group for one in whole[0]] == [tuple(names)]
    once = [one for groups in pairs for one in groups]
    assert sorted(one.group for one in once) == list(combinations(names, 2))
    judged = judge_pairs(names, once)
    slow_nodes = [one.node for one in judged.nodes if one.verdict in ("sick", "suspect")]
    assert slow in slow_nodes
    assert STEADY <= len(again) <= 3 * len(batches(judged.slow_pairs)) + 2 * MOST * len(slow_nodes)
    assert [one.group for one in rest] == [tuple(name for name in names if name != slow)]


def unfinished(cluster: Workplace) -> list[str]:
    jobs = cluster.fab("jobs", "--json").json()
    return [job["job"] for job in jobs if job["state"] not in ("SUCCEEDED", "FAILED", "CANCELLED", "LOST")]


def searched(cluster: Workplace, expected: int) -> dict[str, Any]:
    program = Path(__file__).with_name("measured_search.py")
    found: dict[str, Any] = cluster.run(
        sys.executable, str(program), str(cluster.project), str(expected)
    ).json()
    return found


@pytest.mark.for_every_change
def test_a_slow_node_is_named_with_its_part_of_its_peers_bandwidth(shaped: Workplace, tmp_path: Path) -> None:
    shaped.fab("rehearsal.fault", "slow-link", "--nodes", "3", "--rate", str(SLOW))
    picture = tmp_path / "pairs.svg"
    ran = shaped.fab("check", "--deep", "--json", "--svg", str(picture), status=1)
    found = ran.json()
    measured = {one["node"]: one["verdict"] for one in found["bandwidth"]["nodes"]}
    assert measured == {f"node{n:06}": "sick" if n == 3 else "unknown" for n in range(NODES)}, ran
    (one,) = [one for one in found["bandwidth"]["nodes"] if one["verdict"] == "sick"]
    assert SLOW / USUAL * 0.6 < one["ratio"] < 0.67
    assert (one["pairs_below"], one["pairs"]) == (NODES - 1, NODES - 1)
    assert one["reason"] in found["nodes"]["node000003"]["reasons"]
    assert_rounds(found["bandwidth"]["rounds"], slow="node000003")
    kept = json.loads((shaped.project / ".ranklift/rehearsal/check.json").read_text())
    assert verdicts(kept) == verdicts(found)
    titles = [one.text or "" for one in ET.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}title")]
    assert sum("node000003" in title for title in titles) == 2 * (NODES - 1)
    assert unfinished(shaped) == []


def test_nodes_as_fast_as_each_other_are_unknown_without_a_figure(shaped: Workplace) -> None:
    ran = shaped.fab("check", "--deep", "--nodes", "0-2", status=None)  # a look may warn
    assert "% of 25 GB/s (rate of its adapter" in ran.out
    assert "no figure" in ran.out
    assert "sick" not in ran.out


def test_halves_and_pairs_find_two_slow_nodes_below_a_figure(shaped: Workplace) -> None:
    shaped.fab("rehearsal.fault", "slow-link", "--nodes", "1", "--rate", str(SLOW))
    found = searched(shaped, FIGURE)
    slow = {one["node"] for one in found["nodes"] if one["verdict"] in ("sick", "suspect")}
    assert slow == {"node000001"}, found
    assert [len(one["group"]) for one in found["rounds"][1]] == [3, 3]
    assert found["rest"]["gbs"] > 0.85 * FIGURE / 1000
    shaped.fab("rehearsal.fault", "slow-link", "--nodes", "5", "--rate", str(SLOW))
    found = searched(shaped, FIGURE)
    slow = {one["node"] for one in found["nodes"] if one["verdict"] in ("sick", "suspect")}
    assert slow == {"node000001", "node000005"}, found


def test_a_cluster_that_is_slow_as_a_whole_has_no_sick_node(shaped: Workplace) -> None:
    found = searched(shaped, 3 * USUAL)
    assert {one["verdict"] for one in found["nodes"]} == {"suspect"}
    assert "as slow as its peers" in found["nodes"][0]["reason"]
    assert not found["is_healthy"]


def test_all_pairs_find_a_slow_path_between_healthy_nodes(shaped: Workplace) -> None:
    shaped.fab("rehearsal.fault", "slow-path", "--nodes", "1,4", "--rate", str(SLOW // 2))
    found = shaped.fab("check", "--deep", "--pairs", "--json", status=1).json()
    assert [one["group"] for one in found["bandwidth"]["slow_pairs"]] == [["node000001", "node000004"]]
    assert {one["verdict"] for one in found["bandwidth"]["nodes"]} == {"unknown"}


@contextmanager
def in_the_second_round(cluster: Workplace) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A check of all pairs whose second round has begun, and its further output."""
    with cluster.begin("check", "--deep", "--pairs") as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("round 1:"):
                break
        else:
            pytest.fail("".join(lines))
        time.sleep(2)  # the jobs of the second round take longer
        yield process, process.stdout


def test_ctrl_c_ends_the_jobs_that_measure(shaped: Workplace) -> None:
    with in_the_second_round(shaped) as (process, output):
        process.send_signal(signal.SIGINT)
        rest = output.read()
        assert process.wait() == 130, rest
    assert "interrupted: ended check-2-" in rest
    assert unfinished(shaped) == []


def test_a_second_check_is_refused_while_one_measures(shaped: Workplace) -> None:
    with in_the_second_round(shaped) as (process, output):
        refused = shaped.fab("check", "--deep", status=1)
        assert f"another `fab check --deep` measures it (process {process.pid}, since " in refused.err
        lock = shaped.project / ".ranklift/rehearsal/check.lock"
        lock.rename(lock.with_suffix(".aside"))  # as if the first ran on another machine
        refused = shaped.fab("check", "--deep", status=1)
        assert "of another `fab check --deep` measures node00000" in refused.err, refused
        lock.with_suffix(".aside").unlink()
        process.send_signal(signal.SIGINT)
        output.read()
        assert process.wait() == 130
    assert unfinished(shaped) == []


def test_a_job_that_comes_between_two_rounds_ends_the_check_by_its_name(shaped: Workplace) -> None:
    with in_the_second_round(shaped) as (process, output):
        job = shaped.fab("launch.torch", "--detach", "--nodes", "2", "--", "sleep", "600").out.split()[0]
        try:
            rest = output.read()
            assert process.wait() == 1, rest
            assert f"{job} came between two rounds of the check; nothing more was measured" in rest
            assert unfinished(shaped) == [job]
        finally:
            shaped.fab("cancel", job)


def test_a_node_with_a_job_is_left_out_and_named(shaped: Workplace) -> None:
    job = shaped.fab("launch.torch", "--detach", "--nodes", "2", "--", "sleep", "600").out.split()[0]
    try:
        ran = shaped.fab("check", "--deep", "--nodes", "0-2", status=None)
        assert f"not measured: node000002: it has job {job}" in ran.err or job in ran.err, ran
        assert "node000000,node000001" in ran.err or "node[000000-000001] together" in ran.err
    finally:
        shaped.fab("cancel", job)
