"""Faults of Azure: each is named with what to do, nothing is lost, and the same command works afterwards."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.workplace import Ran, Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK = "rehearsal"
ON_THE_WAY_S = 120.0
SINCE = "cut -d' ' -f22 /proc/1/stat"
"""When a node booted: its first process's start, in clock ticks of the machine underneath."""


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """The stack is up with two nodes; each test finds and leaves it so."""
    workplace.configure(STACK, nodeCount=2)
    workplace.fab("up")
    return workplace


@contextmanager
def fault(cluster: Workplace, *words: str) -> Iterator[None]:
    """A fault."""
    cluster.fab("rehearsal.fault", *words)
    try:
        yield
    finally:
        cluster.fab("rehearsal.fault", "clear")


def booted(cluster: Workplace) -> dict[str, str]:
    """By node, when it booted."""
    return {name: ran["stdout"] for name, ran in cluster.fab("exec", SINCE, "--json").json().items()}


def configured(cluster: Workplace) -> int:
    text = (cluster.project / f"Pulumi.{STACK}.yaml").read_text()
    found = re.search(r"ranklift:nodeCount: \"?(\d+)", text)
    assert found is not None, text
    return int(found[1])


def fails(cluster: Workplace, *words: str, say: tuple[str, ...]) -> Ran:
    """A command that has to end with 1 and to say this, in an error that ends all that it says."""
    ran = cluster.fab(*words, status=1)
    for text in say:
        assert text in ran.err, ran
    assert "error: " in ran.err
    return ran


@pytest.mark.for_every_change
def test_of_too_few_nodes_those_that_came_are_removed_unless_they_are_to_be_kept(cluster: Workplace) -> None:
    before = booted(cluster)
    with fault(cluster, "allocation", "--after", "2"):
        fails(
            cluster,
            *("scale", "5"),
            say=(
                "2 of 3 further nodes are ready: VirtualMachineScaleSet nodes: AllocationFailed: Allocation",
                "the new ones were removed again; the 2 from before stay\n`fab scale 5 --stack rehearsal`",
            ),
        )
    assert cluster.fab("status").out.count("running") == 2
    assert booted(cluster) == before
    assert configured(cluster) == 2

    cluster.configure(STACK, nodeCount=2, partial="keep")
    with fault(cluster, "allocation", "--after", "2"):
        fails(
            cluster,
            *("scale", "5"),
            say=(
                "configured for 5 nodes, Azure has 4: `fab scale 5` adds the others",
                "2 of 3 further nodes are ready",
                "kept\n`fab scale 5 --stack rehearsal` tries again",
            ),
        )
    four = booted(cluster)
    assert len(four) == 4
    assert {name: four[name] for name in before} == before
    assert configured(cluster) == 5
    assert "configured for 5 nodes, Azure has 4" in cluster.fab("status", status=1).err
    cluster.fab("up")
    five = booted(cluster)
    assert len(five) == 5
    assert {name: five[name] for name in four} == four
    cluster.fab("scale", "2")
    cluster.configure(STACK, nodeCount=2)


def test_what_azure_would_refuse_is_refused_before_anything_changes(cluster: Workplace) -> None:
    with fault(cluster, "quota"):
        fails(
            cluster,
            "scale",
            "3",
            say=("40 more are needed, 0 are left", "ask for a limit of at least 120"),
        )
    with fault(cluster, "sku"):
        fails(cluster, "scale", "3", say=("NotAvailableForSubscription", "ask Azure's support to open it"))
    assert configured(cluster) == 2
    with fault(cluster, "login"):
        fails(
            cluster,
            "scale",
            "3",
            say=("expired", "run `az login`"),
        )
    assert len(booted(cluster)) == 2


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (["overconstrained"], "OverconstrainedAllocationRequest", "another zone"),
        (["forbidden"], "AuthorizationFailed", "User Access Administrator"),
    ],
)
def test_a_refusal_on_the_way_is_named_with_its_remedy_and_the_same_command_works_later(
    cluster: Workplace, words: list[str], problem: str, remedy: str
) -> None:
    before = booted(cluster)
    with fault(cluster, *words):
        fails(cluster, "scale", "3", say=(problem, remedy, "configured for 2 nodes as before, Azure has 2"))
    assert configured(cluster) == 2
    cluster.fab("scale", "3")
    three = booted(cluster)
    assert {name: three[name] for name in before} == before
    cluster.fab("scale", "2")


def test_a_sign_in_that_expires_on_the_way_is_named_and_the_same_command_works_later(
    cluster: Workplace,
) -> None:
    before = booted(cluster)
    with fault(cluster, "stuck"), cluster.begin("scale", "3") as scaling:
        wait_until_changing(cluster)
        cluster.fab("rehearsal.fault", "login")
        shown, _ = scaling.communicate(timeout=ON_THE_WAY_S)
    assert scaling.returncode == 1, shown
    assert "xpired" in shown, shown
    assert "run `az login`" in shown, shown
    assert "Traceback" not in shown
    cluster.fab("scale", "3")
    three = booted(cluster)
    assert {name: three[name] for name in before} == before
    cluster.fab("scale", "2")


def wait_until_changing(cluster: Workplace) -> None:
    """Until Azure is at work on the scale set."""
    group = f"/resourceGroups/ranklift-{STACK}"
    path = f"{group}/providers/Microsoft.Compute/virtualMachineScaleSets/ranklift-{STACK}"
    deadline = time.monotonic() + ON_THE_WAY_S
    while cluster.azure(path)["properties"]["provisioningState"] == "Succeeded":
        assert time.monotonic() < deadline, "Azure was never asked to change anything"
        time.sleep(0.05)


@pytest.mark.for_every_change
def test_throttling_is_waited_out(cluster: Workplace) -> None:
    with fault(cluster, "throttle", "--after", "10", "--count", "3"):
        cluster.fab("scale", "3")
        ran = cluster.fab("rehearsal.fault")
        assert ran.out == "no fault is set\n", "it never came to three refusals"
    cluster.fab("scale", "2")


def test_throttling_that_does_not_end_is_called_so_and_the_same_command_works_later(
    cluster: Workplace,
) -> None:
    with fault(cluster, "stuck"), cluster.begin("scale", "3", "--timeout", "30s") as scaling:
        wait_until_changing(cluster)
        cluster.fab("rehearsal.fault", "throttle", "--count", "100000")
        shown, _ = scaling.communicate(timeout=ON_THE_WAY_S)
    assert scaling.returncode == 1, shown
    assert "Azure throttles: " in shown, shown
    assert "wait 1 s, then repeat the command: nothing is lost" in shown, shown
    assert "of that name" not in shown, shown
    cluster.fab("scale", "3")
    assert len(booted(cluster)) == 3
    cluster.fab("scale", "2")


def test_of_two_commands_one_is_told_to_wait_for_the_other(cluster: Workplace) -> None:
    with fault(cluster, "stuck"), cluster.begin("scale", "3") as first:
        wait_until_changing(cluster)
        for words in (("scale", "4"), ("up",), ("replace", "0"), ("down",)):
            ran = fails(cluster, *words, say=("stack rehearsal: another command is using it (process ",))
            assert "wait until it has ended" in ran.err
            assert "cancel" not in ran.err
        cluster.fab("rehearsal.fault", "clear")
        shown, _ = first.communicate(timeout=ON_THE_WAY_S)
    assert first.returncode == 0, shown
    assert configured(cluster) == 3
    with cluster.begin("scale", "4") as one, cluster.begin("scale", "5") as other:
        texts = [running.communicate(timeout=ON_THE_WAY_S)[0] for running in (one, other)]
    assert " cancel --stack" not in "".join(texts)
    cluster.fab("scale", "2")


def test_an_operation_that_never_ends_is_bounded_and_said_and_can_be_left(cluster: Workplace) -> None:
    before = booted(cluster)
    with fault(cluster, "stuck"):
        fails(
            cluster,
            *("scale", "3", "--timeout", "40s"),
            say=(
                "VirtualMachineScaleSet nodes: Azure has been working on it (update) for",
                "`fab up --stack rehearsal`",
            ),
        )
    cluster.fab("up")
    assert len(booted(cluster)) == 3
    with fault(cluster, "stuck"), cluster.begin("scale", "4") as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "updating" in line and "VirtualMachineScaleSet" in line:
                break
        os.killpg(running.pid, signal.SIGINT)
        printed = running.stdout.read()
        assert running.wait() == 130, printed
        assert "`fab scale 4 --stack rehearsal` continues from there\n" in printed
        assert printed.count("fab scale 4") == 1, printed
        assert "stack rehearsal: configured for 4 nodes\n" in printed
    cluster.fab("up")
    assert len(booted(cluster)) == 4
    cluster.fab("scale", "2")
    assert booted(cluster) == before


def test_a_node_that_never_boots_is_named_and_the_same_again_makes_another(cluster: Workplace) -> None:
    before = booted(cluster)
    with fault(cluster, "no-boot", "--after", "1"):
        ran = fails(cluster, "scale", "4", say=("1 of 2 further nodes are ready", "OSProvisioningTimedOut"))
    assert re.search(r"OS Provisioning for VM 'node\w+' did not finish", ran.err), ran
    assert "creates others in place of those that did not boot" in ran.err
    assert len(booted(cluster)) == 3
    cluster.fab("scale", "4")
    four = booted(cluster)
    assert {name: four[name] for name in before} == before
    assert len(four) == 4
    cluster.fab("scale", "2")


def test_a_node_that_does_not_answer_any_more_is_named_and_can_be_replaced(cluster: Workplace) -> None:
    cluster.fab("scale", "3")
    silent = cluster.fab("status", "--json").json()[-1]
    cluster.fab("rehearsal.fault", "partition", "--nodes", str(silent["id"]))
    ran = cluster.fab("up", "--timeout", "60s", status=1)
    waiting, _, error = ran.err.partition("error: ")
    assert f"waiting for {silent['name']}: no answer" in waiting
    for text in (waiting, error):
        assert f"`fab replace {silent['id']} --stack rehearsal` replaces it" in text
    cluster.fab("replace", str(silent["id"]), "--yes")
    assert silent["name"] not in booted(cluster)
    cluster.fab("scale", "2")


def test_a_node_whose_cloud_init_failed_is_named_with_its_last_lines(cluster: Workplace) -> None:
    with fault(cluster, "cloud-init"):
        ran = fails(cluster, "scale", "3", say=("cloud-init failed", "--reimage"))
    new = re.search(r"fab replace (\d+)", ran.err)
    assert new is not None, ran
    assert "cloud-init failed" in cluster.fab("status", status=1).err
    cluster.fab("replace", new[1], "--reimage")
    cluster.fab("status")
    cluster.fab("scale", "2")


def test_an_error_of_a_module_of_the_images_own_is_shown_and_makes_no_node_unfit(cluster: Workplace) -> None:
    printed = "cloud-init reports an error that jobs do not depend on: ('ssh_import_id', OSError('rehearsed"
    with fault(cluster, "cloud-init-image"):
        assert printed in cluster.fab("scale", "3").err
    assert printed in cluster.fab("status").err
    cluster.fab("scale", "2")


def test_a_clock_that_is_off_is_named(cluster: Workplace) -> None:
    rows = cluster.fab("status", "--json").json()
    with fault(cluster, "clock", "--nodes", str(rows[1]["id"]), "--seconds", "37"):
        for words in (["status"], ["wait"]):
            ran = cluster.fab(*words, status=1)
            assert re.search(rf"{rows[1]['name']}: its clock is 3[5-9] s ahead", ran.err), ran
            assert rows[0]["name"] not in ran.err
    cluster.fab("status")


@pytest.mark.for_every_change
def test_a_subnet_in_use_is_told_with_its_holder_and_down_works_later(cluster: Workplace) -> None:
    """After this nothing is up."""
    with fault(cluster, "subnet"):
        fails(
            cluster,
            "down",
            say=("InUseSubnetCannotBeDeleted", "/networkInterfaces/eth0/ipConfigurations/ip is in it"),
        )
    cluster.fab("down")
    assert cluster.groups() == set()


def test_a_name_that_is_still_being_deleted_is_waited_for(workplace: Workplace) -> None:
    workplace.configure(STACK, nodeCount=1)
    with fault(workplace, "conflict", "--count", "2", "--seconds", "120"):
        ran = workplace.fab("up")
    assert "Azure is still busy (ResourceGroupBeingDeleted); retrying in 2 s" in ran.err
    assert workplace.fab("exec", "uname -n").out.startswith("node")
    workplace.fab("down")


@pytest.mark.for_every_change
def test_a_role_that_azure_does_not_know_everywhere_yet_is_waited_for(workplace: Workplace) -> None:
    workplace.configure(STACK, nodeCount=1, ttlHours=24, idleStopMinutes=30)
    with fault(workplace, "replication", "--count", "2"):
        ran = workplace.fab("up")
    for code in ("RoleDefinitionDoesNotExist", "PrincipalNotFound"):
        assert f"watcher-right: Azure does not find yet what was just made ({code}); retrying" in ran.err
    assert workplace.fab("exec", "uname -n").out.startswith("node")
    workplace.fab("down")


@pytest.mark.parametrize("partial", ["keep", "remove"])
def test_a_first_try_that_brings_too_few_leaves_what_the_user_chose(
    workplace: Workplace, partial: str
) -> None:
    workplace.configure(STACK, nodeCount=3, partial=partial)
    with fault(workplace, "allocation", "--after", "1"):
        fails(workplace, "up", say=("1 of 3 nodes are ready", "AllocationFailed"))
    if partial == "remove":
        assert workplace.groups() == set()
    else:
        assert len(booted(workplace)) == 1
        assert "configured for 3 nodes, Azure has 1" in workplace.fab("status", status=1).err
    workplace.fab("up")
    assert len(booted(workplace)) == 3
    workplace.fab("down")
    assert workplace.groups() == set()
