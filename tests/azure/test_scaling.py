"""More nodes, fewer nodes, a node made anew: who goes, who stays, and that those who stay notice nothing."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.workplace import Ran, Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK = "rehearsal"
SET = f"/providers/Microsoft.Compute/virtualMachineScaleSets/ranklift-{STACK}"
SINCE = "cut -d' ' -f22 /proc/1/stat"
"""When a node booted: its first process's start, in clock ticks of the machine underneath."""


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """The stack is up with four nodes; each test finds and leaves it so."""
    workplace.configure(STACK, nodeCount=4)
    workplace.fab("up")
    return workplace


def booted(cluster: Workplace) -> dict[str, str]:
    """By node, when it booted."""
    return {name: ran["stdout"] for name, ran in cluster.fab("exec", SINCE, "--json").json().items()}


def states(cluster: Workplace) -> dict[str, str]:
    return {row["name"]: row["state"] for row in cluster.fab("status", "--json").json()}


def configured(cluster: Workplace) -> str:
    text = (cluster.project / f"Pulumi.{STACK}.yaml").read_text()
    found = re.search(r"ranklift:nodeCount: \"?(\d+)", text)
    assert found is not None, text
    return found[1]


def is_as_configured(cluster: Workplace) -> None:
    """Pulumi sees no difference between program and state, nor between state and Azure."""
    cluster.pulumi("refresh", "--yes", "--skip-preview", "--expect-no-changes", "--stack", STACK)
    cluster.pulumi("preview", "--expect-no-changes", "--stack", STACK)


def change(cluster: Workplace, method: str, path: str, body: dict[str, Any] | None = None) -> None:
    """What somebody does to the stack's group in the portal; returns when Azure has done it."""
    record = cluster.record
    group = f"/subscriptions/{record.subscription_id}/resourceGroups/ranklift-{STACK}"
    _, headers = cluster.ask(method, f"{group}{path}", body)
    while True:
        status = cluster.ask("GET", headers["Azure-AsyncOperation"])[0]["status"]
        if status != "InProgress":
            break
    assert status == "Succeeded"


@contextmanager
def job(cluster: Workplace, nodes: str, line: str = "sleep 600") -> Iterator[str]:
    """A job that runs on these nodes until the test is over; gives its id."""
    (cluster.own / "wait.sh").write_text(f"{line}\n")
    launched = cluster.fab(
        "launch.torch", "bash wait.sh", "--per-node", "--nodes", nodes, "--detach", "--name", "wait"
    )
    found = re.search(r"wait-\d{8}-\d{6}-\w{4}", launched.out + launched.err)
    assert found is not None, launched
    try:
        yield found[0]
    finally:
        cluster.fab("cancel", found[0], "--grace", "0", status=None)


def refused(cluster: Workplace, *words: str, status: int = 1) -> Ran:
    """What a command says that must not change anything."""
    before = booted(cluster), configured(cluster)
    ran = cluster.fab(*words, status=status)
    assert (booted(cluster), configured(cluster)) == before
    return ran


@pytest.mark.for_every_change
def test_growing_and_shrinking_leave_the_others_alone_and_no_difference_behind(cluster: Workplace) -> None:
    before = booted(cluster)
    grown = cluster.fab("scale", "6")
    assert "6 of 6 nodes answer" in grown.err
    six = booted(cluster)
    assert {name: six[name] for name in before} == before
    assert len(six) == 6
    assert configured(cluster) == "6"
    is_as_configured(cluster)

    shrunk = cluster.fab("scale", "4")
    newest = sorted(set(six) - set(before))
    assert f"removing node[{newest[0]}-".replace("node[node", "node[") in shrunk.err
    assert booted(cluster) == before
    assert configured(cluster) == "4"
    is_as_configured(cluster)
    assert set(states(cluster)) == set(before)


@pytest.mark.for_every_change
def test_idle_nodes_go_first_and_one_with_a_job_never(cluster: Workplace) -> None:
    """Which nodes are there differs from test to test: ids only grow."""
    first, second, third, last = sorted(booted(cluster))
    number = cluster.fab("status", "--json").json()[-1]["id"]
    with job(cluster, str(number)) as busy:
        ran = cluster.fab("scale", "3")
        assert f"removed {third}; 3 nodes stay" in ran.err
        assert set(booted(cluster)) == {first, second, last}

        with job(cluster, "0") as other:
            ran = refused(cluster, "scale", "1")
            assert "2 of 3 nodes must be removed, idle: 1; nothing was changed" in ran.err
            assert f"{first}: it has {other}" in ran.err
            assert f"{last}: it has {busy}" in ran.err
            assert "fab wait" in ran.err
        assert cluster.fab("job", busy, "--json").json()["state"]["state"] == "RUNNING"
    cluster.fab("scale", "4")


def test_a_job_for_a_node_that_is_being_removed_is_refused_and_names_the_command(cluster: Workplace) -> None:
    before = booted(cluster)
    *_, other, last = cluster.fab("status", "--json").json()
    (cluster.own / "wait.sh").write_text("sleep 600\n")
    cluster.fab("rehearsal.fault", "stuck")
    with cluster.begin("scale", "3") as scaling:
        try:
            assert scaling.stdout is not None
            printed = ""
            while f"removing {last['name']}" not in printed:
                line = scaling.stdout.readline()
                assert line, printed
                printed += line
            nodes = f"{other['id']},{last['id']}"
            words = ("launch.torch", "bash wait.sh", "--per-node", "--nodes", nodes)
            ran = cluster.fab(*words, status=255)
            assert f"{last['name']} is being removed by `fab scale 3` of " in ran.err
            assert "Azure" not in ran.err
            # Nobody else changes the stack meanwhile, and nobody who is refused has removed a node.
            for beside in (("scale", "2", "--yes"), ("replace", "0", "--yes"), ("up",)):
                assert "another command is using it" in cluster.fab(*beside, status=1).err
            ran = cluster.pulumi("up", "--yes", "--skip-preview", "--stack", STACK, status=None)
            assert ran.status != 0
            assert "currently locked" in ran.err + ran.out
        finally:
            cluster.fab("rehearsal.fault", "clear")
        printed += scaling.stdout.read()
        assert scaling.wait() == 0, printed
    assert set(before) - set(booted(cluster)) == {last["name"]}
    assert configured(cluster) == "3"
    is_as_configured(cluster)
    cluster.fab("scale", "4")


def test_a_scale_that_was_killed_keeps_no_job_off_and_removes_nothing_it_had_not_begun_to(
    cluster: Workplace,
) -> None:
    last = cluster.fab("status", "--json").json()[-1]
    cluster.fab("rehearsal.fault", "stuck")
    with cluster.begin("scale", "3") as scaling:
        try:
            assert scaling.stdout is not None
            while f"removing {last['name']}" not in (line := scaling.stdout.readline()):
                assert line
            os.kill(scaling.pid, signal.SIGKILL)
            scaling.wait()
            deadline = time.monotonic() + 30
            while cluster.fab(
                "exec", "flock -n .ranklift/slots/0 true", "--nodes", str(last["id"]), status=None
            ).status:
                assert time.monotonic() < deadline, "the slots are still held"
        finally:
            cluster.fab("rehearsal.fault", "clear")
    # Pulumi's update has ended by itself: its program waited for the command that is gone.
    deadline = time.monotonic() + 60
    while (done := cluster.fab("scale", "4", status=None)).status:
        assert "another command is using it" in done.err, done
        assert time.monotonic() < deadline, done
    assert configured(cluster) == "4"
    assert len(booted(cluster)) == 4
    is_as_configured(cluster)


def test_a_scale_that_azure_forbids_leaves_nodes_and_configuration_as_they_were(cluster: Workplace) -> None:
    cluster.fab("rehearsal.fault", "forbidden")
    try:
        for wanted in ("3", "5"):
            ran = refused(cluster, "scale", wanted)
            assert "Contributor" in ran.err
            assert "configured for 4 nodes as before, Azure has 4" in ran.err
    finally:
        cluster.fab("rehearsal.fault", "clear")
    is_as_configured(cluster)


def test_a_node_that_keeps_the_records_of_jobs_goes_last_of_the_idle_ones(cluster: Workplace) -> None:
    rows = cluster.fab("status", "--json").json()
    with job(cluster, str(rows[-1]["id"]), "true") as done:
        cluster.fab("wait", done)
    there = cluster.fab("exec", "ls .ranklift/jobs/*/job.json", "--json", status=None).json()
    heads = {name for name, its in there.items() if its["stdout"]}  # earlier tests' jobs had some, too
    assert rows[-1]["name"] in heads
    ran = cluster.fab("scale", "3")
    gone = max(row["name"] for row in rows if row["name"] not in heads)
    assert f"removed {gone}; 3 nodes stay" in ran.err
    assert cluster.fab("job", done, "--json").json()["state"]["state"] == "SUCCEEDED"
    cluster.fab("scale", "4")


def test_a_dry_run_names_the_node_that_goes_and_changes_nothing(cluster: Workplace) -> None:
    ran = refused(cluster, "scale", "3", "--dry-run", status=0)
    assert ran.out.startswith("node")
    assert ": to be removed: idle, no uncollected files as far as the heads know\n" in ran.out
    assert ran.out.endswith(
        "\npulumi config set ranklift:nodeCount 3 --stack rehearsal\n"
        "pulumi up --yes --skip-preview --stack rehearsal\nfab wait --stack rehearsal\n"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["scale", "0"], "number = 0: must be at least 1; give 1 or more; `fab down` removes the cluster"),
        (["scale", "four"], "is not a number of nodes"),
        (["scale", "101"], "largeScaleSet"),
        (["replace", "77"], "77 is not a node of stack"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    cluster: Workplace, words: list[str], problem: str
) -> None:
    assert problem in refused(cluster, *words, status=2).err


def test_a_replaced_node_comes_back_under_another_name_and_the_others_stay(cluster: Workplace) -> None:
    before = booted(cluster)
    sick = sorted(before)[1]
    ran = cluster.fab("replace", sick, "--yes")
    after = booted(cluster)
    (fresh,) = set(after) - set(before)
    assert ran.out.endswith(f"{sick} replaced by {fresh}\n")
    assert {name: since for name, since in before.items() if name != sick} == {
        name: since for name, since in after.items() if name != fresh
    }
    assert configured(cluster) == "4"
    is_as_configured(cluster)


def test_a_replacement_that_was_interrupted_says_so_and_goes_on(cluster: Workplace) -> None:
    before = booted(cluster)
    sick = cluster.fab("status", "--json").json()[1]
    with cluster.begin("replace", str(sick["id"]), "--yes") as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "$ pulumi up" in line and "--refresh" in line:  # the one before removes the node
                break
        os.killpg(running.pid, signal.SIGINT)
        printed = running.stdout.read()
        assert running.wait() == 130, printed
    assert (
        f"{sick['name']} is removed, and the one in its place may not be created yet: `fab up --st" in printed
    )
    assert "3 of 4 nodes; `fab up --stack rehearsal`" in cluster.fab("replace", "77", status=2).err
    ran = cluster.fab("up")
    assert "4 of 4 nodes answer" in ran.err
    assert set(before) - set(booted(cluster)) == {sick["name"]}


def test_as_many_nodes_as_there_are_is_no_change(cluster: Workplace) -> None:
    ran = refused(cluster, "scale", "4", status=0)
    assert ran.out == "stack rehearsal: has 4 nodes, as configured\n"
    assert ran.err == ""


def test_a_reimaged_node_keeps_its_name_and_gets_the_code_again(cluster: Workplace) -> None:
    (cluster.own / "wait.sh").write_text("true\n")
    code = cluster.fab("push", "--json").json()["snapshot"]
    before = booted(cluster)
    rows = {row["name"]: row for row in cluster.fab("status", "--json").json()}
    sick = sorted(before)[-1]
    number = str(rows[sick]["id"])
    has = cluster.fab("exec", "touch ~/mine; ls ~ ~/.ranklift/snapshots", "--nodes", number).out
    assert {"mine", code} <= set(has.split())

    ran = cluster.fab("replace", number, "--reimage", "--yes")
    assert ran.out.endswith(f"{sick} reimaged\n")
    after = booted(cluster)
    assert after.pop(sick) != before.pop(sick)
    assert after == before
    assert {row["name"]: row for row in cluster.fab("status", "--json").json()} == rows
    has = cluster.fab("exec", "ls ~ ~/.ranklift/snapshots", "--nodes", number, status=None).out
    assert set(has.split()).isdisjoint({"mine", code})
    cluster.fab("push")
    assert "wait.sh" in cluster.fab("exec", f"ls ~/.ranklift/snapshots/{code}", "--nodes", number).out


def test_a_node_with_a_job_is_replaced_only_when_the_job_may_be_ended(cluster: Workplace) -> None:
    rows = cluster.fab("status", "--json").json()
    sick = rows[-1]
    with job(cluster, f"{rows[0]['id']},{sick['id']}") as busy:
        ran = refused(cluster, "replace", str(sick["id"]))
        assert f"{sick['name']} is not replaced" in ran.err
        assert busy in ran.err
        assert "--cancel-jobs" in ran.err
        ran = refused(cluster, "replace", str(sick["id"]), "--cancel-jobs")
        assert f"not collected, as far as the heads know: {busy}" in ran.err
        ran = cluster.fab("replace", str(sick["id"]), "--cancel-jobs", "--yes")
        assert f"job {busy} CANCELLED" in ran.err
    assert sick["name"] not in states(cluster)


def test_a_dead_node_is_replaced_at_once_whatever_ran_there(cluster: Workplace) -> None:
    rows = cluster.fab("status", "--json").json()
    dead = rows[1]
    cluster.fab("rehearsal.fault", "death", "--nodes", str(dead["id"]))
    shown = cluster.fab("status", status=1)
    assert "stopped" in shown.out
    began = time.monotonic()
    unknown = cluster.fab("replace", dead["name"], status=1)
    assert f"{dead['name']}: its jobs and results are unknown: it does not run" in unknown.err
    cluster.fab("replace", dead["name"], "--yes")
    assert time.monotonic() - began < 120
    assert dead["name"] not in states(cluster)
    assert len(states(cluster)) == 4


def test_what_was_changed_in_the_portal_is_shown_and_repaired(cluster: Workplace) -> None:
    """A capacity of 0 is also what idle stop leaves."""
    change(cluster, "PATCH", SET, {"sku": {"capacity": 2}})
    shown = cluster.fab("status", status=1)
    assert "configured for 4 nodes, Azure has 2" in shown.err
    repaired = cluster.fab("up")
    assert "drift: Pulumi created 4 nodes, Azure has 2" in repaired.err
    assert "4 of 4 nodes answer" in repaired.err

    before = booted(cluster)
    change(cluster, "PATCH", SET, {"sku": {"capacity": 6}})
    assert "configured for 4 nodes, Azure has 6" in cluster.fab("status", status=1).err
    with job(cluster, str(cluster.fab("status", "--json", status=1).json()[0]["id"])):
        assert "4 nodes stay" in cluster.fab("up").err
    assert booted(cluster) == before
    is_as_configured(cluster)


def test_a_cluster_that_was_stopped_comes_back_whole(cluster: Workplace) -> None:
    change(cluster, "PATCH", SET, {"sku": {"capacity": 0}})
    shown = cluster.fab("status", status=1)
    assert "configured for 4 nodes, Azure has 0" in shown.err
    assert "drift: Pulumi created 4 nodes, Azure has 0" in cluster.fab("up").err
    assert len(booted(cluster)) == 4
    is_as_configured(cluster)


def test_a_resource_deleted_behind_our_back_is_named_and_made_anew(cluster: Workplace) -> None:
    change(cluster, "DELETE", SET)
    shown = cluster.fab("status", status=1)
    assert "`fab up --stack rehearsal`" in shown.err
    repaired = cluster.fab("up")
    assert "drift: VirtualMachineScaleSet nodes: Azure no longer has it" in repaired.err
    assert "4 of 4 nodes answer" in repaired.err
    is_as_configured(cluster)
