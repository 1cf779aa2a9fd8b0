"""What a cluster costs and whether it is granted, known before; what is left of it, listed after."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.workplace import LIMIT_S, Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

STACK = "rehearsal"
GROUP = f"ranklift-{STACK}"
PORTAL = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"
TAG = {"ranklift-stack": STACK}
PLAN_S = 3.0


@contextmanager
def fault(workplace: Workplace, *words: str) -> Iterator[None]:
    """A fault."""
    workplace.fab("rehearsal.fault", *words)
    try:
        yield
    finally:
        workplace.fab("rehearsal.fault", "clear")


@pytest.fixture
def nothing(workplace: Workplace) -> Workplace:
    """Four nodes are wanted, none is there, and none is there afterwards."""
    workplace.configure(STACK, nodeCount=4)
    assert workplace.groups() == set()
    return workplace


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """Two nodes are up."""
    workplace.configure(STACK, nodeCount=2)
    workplace.fab("plan", "--yes")
    return workplace


def put(workplace: Workplace, path: str, body: dict[str, Any]) -> None:
    """What somebody does in the portal."""
    own = f"/subscriptions/{workplace.record.subscription_id}{path}"
    workplace.ask("PUT", own, body, version="2024-05-01")


def delete_group(workplace: Workplace, name: str) -> None:
    own = f"/subscriptions/{workplace.record.subscription_id}/resourcegroups/{name}"
    workplace.ask("DELETE", own, version="2024-05-01")
    deadline = time.monotonic() + LIMIT_S
    while name in workplace.groups() and time.monotonic() < deadline:
        time.sleep(0.2)


# -- before anything is made


def test_a_plan_for_four_nodes_prints_in_under_three_seconds(nothing: Workplace) -> None:
    nothing.fab("plan")  # Microsoft's models, which the emulated Azure imports first, are no part of it
    took = []
    for _ in range(3):
        began = time.monotonic()
        shown = nothing.fab("plan")
        took.append(time.monotonic() - began)
    assert "4 x Standard_ND40rs_v2, regular, in southcentralus" in shown.out
    assert "no nodes exist" in shown.out
    assert min(took) < PLAN_S, took


@pytest.mark.for_every_change
def test_a_plan_has_prices_and_quotas_and_makes_nothing(nothing: Workplace) -> None:
    found = nothing.fab("plan", "--json").json()
    disk = 15 / 730  # P15, for 256 GiB
    assert found["regular_per_hour"] == pytest.approx(4 * (24.0 + disk) + 0.05 + 2 * 0.01)
    assert found["spot_per_hour"] == pytest.approx(4 * (4.8 + disk) + 0.05 + 2 * 0.01)
    assert {line["name"]: line["needed"] for line in found["quotas"]} == {
        "standardNDSv2Family": 160,
        "cores": 160,
    }
    assert (found["offered"], found["zones"], found["refusals"]) == (True, ["1", "2"], [])
    assert nothing.groups() == set()


@pytest.mark.for_every_change
def test_a_quota_that_is_too_small_is_refused_before_the_first_resource(nothing: Workplace) -> None:
    with fault(nothing, "quota"):
        for words in (("plan",), ("plan", "--yes"), ("up",)):
            ran = nothing.fab(*words, status=1)
            assert "160 more are needed, 0 are left (limit 0, used 0)" in ran.err
            assert PORTAL in ran.err
        assert nothing.groups() == set()


def test_a_size_that_the_subscription_may_not_have_is_refused_too(nothing: Workplace) -> None:
    with fault(nothing, "sku"):
        ran = nothing.fab("up", status=1)
    assert "is closed to this subscription (NotAvailableForSubscription) in southcentralus" in ran.err
    assert "no region offers it to this subscription" in ran.err
    assert nothing.groups() == set()


def test_an_image_that_the_marketplace_does_not_have_any_more_is_refused_too(nothing: Workplace) -> None:
    with fault(nothing, "image"):
        for words in (("plan",), ("up",)):
            ran = nothing.fab(*words, status=1)
            assert (
                "image: Azure does not have microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2025082501 in "
                "southcentralus; the newest is 22.04.2026110101" in ran.err
            ), ran
            assert "set ranklift:image to microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2026110101" in ran.err
    assert nothing.groups() == set()
    nothing.configure(
        STACK, nodeCount=1, vmSize="Standard_HB176rs_v4", image="almalinux:almalinux-hpc:9-hpc-gen2:9.6.1"
    )
    with fault(nothing, "terms"):
        ran = nothing.fab("plan", status=1)
    assert "az vm image terms accept --urn almalinux:almalinux-hpc:9-hpc-gen2:9.6.1" in ran.err
    assert (
        "image: almalinux:almalinux-hpc:9-hpc-gen2:9.6.1: V2, x64, purchase plan" in nothing.fab("plan").out
    )


@pytest.mark.for_every_change
def test_a_cluster_above_its_price_is_not_made(nothing: Workplace) -> None:
    nothing.configure(STACK, nodeCount=4, maxPrice=96)
    ran = nothing.fab("up", status=1)
    assert "96.15219 USD per hour is more than ranklift:maxPrice allows, 96 USD per hour" in ran.err
    assert nothing.groups() == set()
    nothing.configure(STACK, nodeCount=4, maxPrice=96, spot="true")
    assert nothing.fab("plan").out.count("unknown") == 1  # whether Azure has that version of the image


def test_an_expired_sign_in_is_one_line(nothing: Workplace) -> None:
    with fault(nothing, "login"):
        for task in ("plan", "account"):
            ran = nothing.fab(task, status=1)
            assert ran.err == "error: the sign-in to Azure has expired; run `az login`\n"
            assert ran.out == ""


def test_azure_that_asks_for_patience_gets_it(nothing: Workplace) -> None:
    with fault(nothing, "throttle"):
        assert nothing.fab("plan", "--json").json()["refusals"] == []


def test_a_no_at_the_terminal_makes_nothing(nothing: Workplace) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"n\n")
        with subprocess.Popen(
            ["fab", "plan"],
            cwd=nothing.own,
            env=nothing.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            assert process.wait(LIMIT_S) == 0
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Create it? [y/N]" in shown
    assert nothing.groups() == set()


# -- while it is there


@pytest.mark.for_every_change
def test_what_is_there_counts_as_there(cluster: Workplace) -> None:
    found = cluster.fab("plan", "--nodes", "3", "--json").json()
    assert (found["there"], found["adding"]) == (2, 1)
    assert {(line["name"], line["used"], line["needed"]) for line in found["quotas"]} == {
        ("standardNDSv2Family", 80, 40),
        ("cores", 80, 40),
    }
    with fault(cluster, "quota"):
        # Nothing more is asked for: a full quota speaks against nothing.
        assert cluster.fab("plan", "--json").json()["refusals"] == []
        ran = cluster.fab("scale", "3", status=1)
    assert "40 more are needed, 0 are left (limit 80, used 80)" in ran.err
    assert cluster.fab("plan", "--json").json()["there"] == 2


def test_a_plan_says_how_much_of_the_clusters_time_is_left(cluster: Workplace) -> None:
    cluster.configure(STACK, nodeCount=2, ttlHours=24)
    assert 23 < cluster.fab("plan", "--json").json()["hours_left"] < 24
    assert "(ranklift:ttlHours): 2" in cluster.fab("plan").out
    cluster.configure(STACK, nodeCount=2)
    assert cluster.fab("plan", "--json").json()["hours_left"] is None


@pytest.mark.for_every_change
def test_an_account_names_all_with_its_price(cluster: Workplace) -> None:
    found = cluster.fab("account", "--json").json()
    by_type = {one["type"].rpartition("/")[2]: one for one in found["things"]}
    assert by_type["virtualMachineScaleSets"]["per_hour"] == pytest.approx(48.0)
    assert by_type["natGateways"]["per_hour"] == pytest.approx(0.05)
    assert {one["stack"] for one in found["things"]} == {STACK}
    assert {one["group"] for one in found["things"]} == {GROUP}
    assert by_type["virtualMachineScaleSets"]["created"] is not None


def test_the_end_says_what_is_left_and_touches_nothing_else(cluster: Workplace) -> None:
    address = {"location": "southcentralus", "sku": {"name": "Standard"}}
    put(cluster, "/resourcegroups/corporate", {"location": "southcentralus"})
    base = "/resourceGroups/corporate/providers/Microsoft.Network/publicIPAddresses"
    static = {"publicIPAllocationMethod": "Static"}
    put(cluster, f"{base}/stray", {**address, "properties": static, "tags": TAG})
    put(cluster, f"{base}/theirs", {**address, "properties": static})

    ran = cluster.fab("down", status=1)
    assert "left of stack rehearsal in subscription" in ran.out
    assert "stray" in ran.out
    assert "theirs" not in ran.out
    assert cluster.groups() == {"corporate"}

    # Plain Pulumi says the same of a stack that is made anew.
    cluster.fab("up")
    destroyed = cluster.pulumi("destroy", "--yes", "--stack", STACK)
    assert "publicIPAddresses stray in corporate, 0.01 USD per hour" in destroyed.out
    assert "theirs" not in destroyed.out
    assert cluster.groups() == {"corporate"}

    delete_group(cluster, "corporate")
    again = cluster.fab("down")
    assert "nothing of stack rehearsal is left in subscription" in again.out
    assert "nothing of any stack exists" in cluster.fab("account").out


def test_what_is_to_be_kept_is_named_as_kept(workplace: Workplace) -> None:
    workplace.configure(STACK, nodeCount=1, storage="serviceEndpoint", retainData="true")
    workplace.fab("up")
    ran = workplace.fab("down")
    assert "is left in subscription" in ran.out
    assert "but what is kept on purpose" in ran.out
    assert f"az group delete --name {GROUP}-data" in ran.out
    assert workplace.groups() == {f"{GROUP}-data"}

    # The same again cannot be made beside it, which is refused before anything is made.
    for task in ("plan", "up"):
        ran = workplace.fab(task, status=1)
        assert f"data: resource group {GROUP}-data already exists" in ran.err
    assert workplace.groups() == {f"{GROUP}-data"}
    account = re.search(r"ranklift:storageAccountId to (\S+),", ran.err)
    assert account is not None, ran
    given = {"storage": "privateEndpoint", "storageAccountId": account[1]}
    workplace.configure(STACK, nodeCount=1, **given)
    workplace.fab("up")
    workplace.fab("down")
    assert workplace.groups() == {f"{GROUP}-data"}
    delete_group(workplace, f"{GROUP}-data")
