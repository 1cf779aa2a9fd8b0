"""What the head keeps of a job's nodes and ranks while it runs, and afterwards."""

from __future__ import annotations

import os
import shutil
import time
from statistics import median

import pytest

from launch.client.samples import job_samples
from launch.job.spec import Kind
from launch.remote.base import timing
from launch.remote.sample import stored_samples
from launch.remote.sample.sample_records import History, Live
from tests.launch.standin import REMOTE, Nodes, Started, remarks, shell, start, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

TRAINS = """
i=$((1000 * RANKLIFT_RESTART_COUNT)); while :; do
    i=$((i + 1)); echo "step $i loss 0.$i 32 samples/s"; sleep 0.1
    [ $RANK.$i != $FAILS_AT ] || exit 3
done
"""
KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])


def folder(nodes: Nodes, started: Started) -> str:
    return str(nodes.folder / "node000000/.ranklift/jobs" / started.job)


def live(nodes: Nodes, started: Started) -> Live | None:
    return stored_samples.live(folder(nodes, started))


def newest(nodes: Nodes, started: Started) -> Live:
    found = live(nodes, started)
    assert found is not None
    return found


def history(nodes: Nodes, started: Started) -> History:
    found = stored_samples.history(folder(nodes, started))
    assert found is not None
    return found


@KINDS
def test_each_node_and_rank_has_a_sample_younger_than_a_second_until_it_ends(
    nodes: Nodes, kind: Kind
) -> None:
    started = start(nodes, shell(TRAINS, kind, processes_per_node=None, env={"FAILS_AT": "never"}))

    def all_there() -> bool:
        found = live(nodes, started)
        return found is not None and (len(found["nodes"]), len(found["ranks"])) == (3, 6)

    until(all_there)
    times, ages = set(), []
    end = time.monotonic() + 3.4
    while time.monotonic() < end:
        found = live(nodes, started)
        assert found is not None
        times.add(found["nodes"]["node000001"]["time"])
        ages.append(time.time() - min(node["time"] for node in found["nodes"].values()))
        time.sleep(0.02)
    assert 4 <= len(times) <= 7
    assert median(ages) < timing.SAMPLE_AGE_S  # each of them, on a machine that has nothing else to do
    assert found is not None
    assert abs(time.time() - found["time"]) < 2
    for rank in found["ranks"].values():
        assert rank["metrics"].keys() == {"step", "loss", "samples_per_s"}
        assert (rank["metrics"]["samples_per_s"], rank["ended"]) == (32, False)
        assert rank["memory"] > 0
        assert time.time() - rank["silent_since"] < 3
    assert [found["ranks"][str(rank)]["node"] for rank in range(6)] == [
        nodes.nodes[node].name for node in (0, 0, 1, 2, 2, 2)
    ]
    nodes.cancel(started.job)
    started.end()
    found = live(nodes, started)
    assert found is not None
    assert all(rank["ended"] for rank in found["ranks"].values())


def test_a_restart_begins_another_launch_in_the_same_course(nodes: Nodes) -> None:
    started = start(nodes, shell(TRAINS, max_restarts=1, env={"FAILS_AT": "2.20"}))
    until(lambda: (found := live(nodes, started)) is not None and found["attempt"] == 1, 20)
    nodes.cancel(started.job)
    started.end()
    found = live(nodes, started)
    assert found is not None
    assert all(rank["metrics"]["step"] > 1000 for rank in found["ranks"].values())
    first, second = history(nodes, started)["attempts"]
    assert (first["attempt"], second["attempt"]) == (0, 1)
    assert first["last_step"] is not None
    assert second["first_step"] is not None
    assert 15 <= first["last_step"] < 100
    assert 1000 < second["first_step"] < 1030
    assert first["ended"] is not None
    assert first["started"] < first["ended"] < second["started"]
    lines = history(nodes, started)["lines"]
    assert [line["metric"] for line in lines] == ["step", "loss", "samples_per_s"]
    assert {(line["line"].split()[0], line["line"].split()[-2:][0]) for line in lines} == {("step", "32")}


def test_the_last_lines_of_a_rank_count_although_no_sample_follows(nodes: Nodes) -> None:
    started = start(nodes, shell("sleep 2; printf 'step 41\\nstep 42'"))
    started.end()
    (attempt,) = history(nodes, started)["attempts"]
    assert attempt["last_step"] == 42


def test_a_job_shorter_than_a_second_leaves_no_samples(nodes: Nodes) -> None:
    started = start(nodes, shell("echo step 3"))
    started.end()
    assert live(nodes, started) is None


def test_a_pattern_that_takes_for_ever_is_dropped_with_a_line_and_the_job_goes_on(nodes: Nodes) -> None:
    line = "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa step 3; sleep 0.2; done"
    started = start(nodes, shell(line, metrics={"bad": "(a+)+b"}))
    until(lambda: (found := live(nodes, started)) is not None and len(found["ranks"]) == 3)
    until(lambda: "metric bad: its pattern took longer than 0.05 s" in remarks(started.events))
    until(lambda: all(one["metrics"] == {"step": 3} for one in newest(nodes, started)["ranks"].values()))
    nodes.cancel(started.job)
    assert started.end().state == "CANCELLED"


def test_the_operators_side_reads_the_samples_of_a_running_job(nodes: Nodes) -> None:
    line = "echo step 1; sleep 1.5; echo step 2; exec sleep 60"
    started = start(nodes, shell(line))
    until(lambda: (found := live(nodes, started)) is not None and len(found["ranks"]) == 3)
    found = job_samples(started.job, nodes.head, "hash")
    assert found.state.state == "RUNNING"
    assert found.live is not None
    assert found.live["ranks"].keys() == {"0", "1", "2"}
    assert {flag["text"] for flag in found.flags} == {
        f"{node.name} has no InfiniBand port" for node in nodes.nodes
    }
    nodes.cancel(started.job)
    started.end()


def test_a_sampler_that_fails_costs_the_samples_and_never_the_job(nodes: Nodes) -> None:
    for node in nodes.nodes:
        remote = nodes.folder / node.name / ".ranklift/remote/hash"
        remote.unlink()
        shutil.copytree(REMOTE, remote, ignore=shutil.ignore_patterns("__pycache__"))
        (remote / "sample/sampler.py").write_text("raise OSError(24, 'Too many open files')\n")
    started = start(nodes, shell("sleep 2.5; echo done"))
    assert started.end().state == "SUCCEEDED"
    assert f"{os.uname().nodename}: no samples from now on: OSError(24, 'Too many open files')" in remarks(
        started.events
    )
