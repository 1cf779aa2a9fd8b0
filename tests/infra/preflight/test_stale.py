"""What is there of a stack from before, and when its cluster would fail at it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.arm.errors import AzureRefused
from infra.preflight.availability import ScaleSet
from infra.preflight.decide import Plan, decide
from infra.preflight.existing import Kept
from infra.preflight.stale import end_of, end_remembered
from tests.infra.azure_answers import PLACE, SIZE
from tests.infra.preflight.stack_figures import against, config, figures

MADE = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
STOPPED = ScaleSet(SIZE, 0, False, PLACE, MADE)
GROUP = "ranklift-dev-data"
ACCOUNT = f"/subscriptions/s-1/resourceGroups/{GROUP}/providers/Microsoft.Storage/storageAccounts/rldev1"
KEPT = Kept(group=GROUP, things=("Microsoft.Storage/storageAccounts rldev1",), account=ACCOUNT, owner="dev")
NODES = Kept(group="ranklift-dev", things=tuple(f"N/t thing{i}" for i in range(7)), owner="dev")


def remembered(made: str | None, ttl: str | None) -> dict[str, Any]:
    """A stack's state with a scale set of that time and tag."""
    tags = {"ranklift-stack": "dev", **({} if ttl is None else {"ranklift-ttl-hours": ttl})}
    nodes = {"type": "azure-native:compute:VirtualMachineScaleSet", "inputs": {"tags": tags}}
    network = {"type": "azure-native:network:VirtualNetwork"}
    return {"deployment": {"resources": [network, {**nodes, "outputs": {"timeCreated": made}}]}}


def after(hours: float, there: ScaleSet | None = STOPPED, **settings: str) -> Plan:
    """The plan that many hours after the scale set was made."""
    now = MADE + timedelta(hours=hours)
    return decide("dev", "s-1", config(**settings), figures(there=there), now=now)


def stored(*kept: Kept, **settings: str) -> Plan:
    return decide("dev", "s-1", config(**{"storage": "serviceEndpoint", **settings}), figures(kept=kept))


# -- time


def test_a_scale_set_whose_time_is_over_gets_no_nodes() -> None:
    found = after(49, ttlHours="48")
    (refusal,) = found.refusals
    assert refusal.about == "time"
    assert "ended at 2026-03-03 09:00 UTC (ranklift:ttlHours is 48" in refusal.problem
    assert "`fab down` and then `fab up`" in refusal.remedy
    assert found.hours_left == pytest.approx(-1)


def test_as_long_as_there_is_time_the_plan_says_how_much() -> None:
    found = after(47.5, ttlHours="48")
    assert (found.refusals, found.ends, found.hours_left) == ((), MADE + timedelta(hours=48), 0.5)
    assert against(after(48, ttlHours="48")) == ["time"]
    assert after(48, ttlHours="49").refusals == ()


@pytest.mark.parametrize("there", [None, ScaleSet(SIZE, 0, False, "westus", MADE)])
def test_a_scale_set_that_is_made_anew_has_all_its_time(there: ScaleSet | None) -> None:
    found = after(49, there, ttlHours="48")
    assert (found.refusals, found.ends, found.hours_left) == ((), None, None)


def test_without_a_limit_a_cluster_may_be_any_age() -> None:
    assert after(10_000).refusals == ()
    assert end_of(STOPPED, replace(config(), ttl_hours=1e9)) is None


def test_the_end_is_known_from_pulumis_state_when_azure_has_no_scale_set_any_more() -> None:
    end = end_remembered(remembered("2026-03-01T09:00:00.1234567Z", "1.5"))
    assert str(end) == "2026-03-01 10:30 UTC (ranklift:ttlHours is 1.5)"


@pytest.mark.parametrize(
    ("made", "ttl"),
    [(None, "2"), ("", "2"), ("2026-03-01T09:00:00Z", None), ("2026-03-01T09:00:00Z", "1e9"),
     ("2026-03-01T09:00:00Z", "x")],
)  # fmt: skip
def test_an_end_that_the_state_does_not_have_is_unknown(made: str | None, ttl: str | None) -> None:
    assert end_remembered(remembered(made, ttl)) is None
    assert end_remembered({"deployment": None}) is None


def test_an_unknown_age_is_said() -> None:
    found = after(49, ScaleSet(SIZE, 0, False, PLACE), ttlHours="48")
    assert found.refusals == ()
    assert any(text.startswith("end of the cluster's lifetime") for text in found.unknowns)


# -- data


def test_data_that_was_kept_is_named_with_the_ways_on() -> None:
    (refusal,) = stored(KEPT, retainData="true").refusals
    assert refusal.about == "data"
    assert f"{GROUP} already exists, with Microsoft.Storage/storageAccounts rldev1" in refusal.problem
    assert f"ranklift:storageAccountId to {ACCOUNT}" in refusal.remedy
    assert "remove ranklift:retainData" in refusal.remedy
    assert "another stack name" in refusal.remedy
    assert f"az group delete --name {GROUP}" in refusal.remedy
    assert "nfs" not in refusal.remedy


def test_a_kept_nfs_folder_can_be_taken_up_by_no_setting() -> None:
    (refusal,) = stored(Kept(group=GROUP, things=(), owner="dev"), storage="none", nfs="files").refusals
    assert "with nothing in it" in refusal.problem
    assert "storageAccountId" not in refusal.remedy
    (refusal,) = stored(KEPT, nfs="files").refusals
    assert "ranklift:nfs to none" in refusal.remedy


def test_data_that_goes_is_waited_for() -> None:
    (refusal,) = stored(Kept(group=GROUP, things=(), deleting=True, owner="dev")).refusals
    assert "still being deleted" in refusal.problem


# -- state


def test_nodes_of_which_pulumi_knows_nothing_are_named_with_the_ways_on() -> None:
    (refusal,) = stored(NODES).refusals
    assert refusal.about == "state"
    assert "resource group ranklift-dev already exists, with N/t thing0, N/t thing1," in refusal.problem
    assert "thing4 and 2 more, and Pulumi's state here lacks it" in refusal.problem
    for way in (
        "pulumi stack import",
        "another stack name",
        "fab account --stack dev",
        "az group delete --name ranklift-dev`",
    ):
        assert way in refusal.remedy
    assert against(stored(NODES, KEPT)) == ["state", "data"]
    assert stored().refusals == ()


def test_rights_that_pulumi_does_not_know_are_named_with_the_command_that_takes_them_away() -> None:
    found = decide("dev", "s-1", config(), figures(rights=["/a/1", "/a/2"]))
    (refusal,) = found.refusals
    assert refusal.about == "state"
    assert "`az role assignment delete --ids /a/1 /a/2`" in refusal.remedy
    unknown = decide("dev", "s-1", config(), figures(rights=AzureRefused("Azure answered: no")))
    assert unknown.refusals == ()
    assert any(text.startswith("earlier rights of the stack") for text in unknown.unknowns)


def test_a_group_that_goes_is_left_to_patience() -> None:
    assert stored(replace(NODES, deleting=True)).refusals == ()


@pytest.mark.parametrize(
    ("owner", "whose"), [(None, "carries no stack's tag"), ("prod", "carries the tag of stack prod")]
)
@pytest.mark.parametrize("group", [NODES, KEPT])
def test_a_group_of_somebody_else_is_not_offered_for_deletion(
    group: Kept, owner: str | None, whose: str
) -> None:
    (refusal,) = stored(replace(group, owner=owner)).refusals
    assert (refusal.about, refusal.remedy) == ("state", "use another stack name")
    assert f"{group.group} already exists and {whose}" in refusal.problem


def test_what_could_not_be_asked_is_unknown() -> None:
    found = decide("dev", "s-1", config(), figures(kept=AzureRefused("Azure answered: no")))
    assert found.refusals == ()
    result = "resources of the stack that Pulumi's state lacks: Azure answered: no"
    assert result in found.unknowns
