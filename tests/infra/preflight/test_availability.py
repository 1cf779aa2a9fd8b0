"""What Azure says of quotas, sizes and scale sets, read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from infra.arm.errors import AzureRefused
from infra.preflight.availability import (
    ScaleSet,
    family_key,
    offer_of,
    offers,
    regions_offering,
    scale_set,
    usages,
)
from tests.infra import azure_answers
from tests.infra.azure_answers import (
    FAMILY,
    PLACE,
    SIZE,
    SUBSCRIPTION,
    Azure,
    closed,
    closed_zones,
    error,
    sku,
)


def offer(*entries: dict[str, Any], size: str = SIZE, place: str = PLACE) -> Any:
    azure = Azure(skus=list(entries))
    return offer_of(offers(azure.rest, SUBSCRIPTION, place), size, place)


def test_every_quota_comes_with_its_figures() -> None:
    found = {usage.name: usage for usage in usages(Azure().rest, SUBSCRIPTION, PLACE)}
    assert (found["cores"].limit, found["cores"].used, found["cores"].left) == (400, 12, 388)
    assert found[FAMILY].label == "Standard NDSv2 Family vCPUs"


def test_a_quota_that_was_lowered_below_what_is_used_leaves_nothing() -> None:
    azure = Azure(usages=[azure_answers.usage("cores", 10, 40)])
    assert usages(azure.rest, SUBSCRIPTION, PLACE)[0].left == 0


@pytest.mark.parametrize("lost", ["limit", "currentValue", "name"])
def test_a_quota_without_its_figures_is_an_error_and_not_zero(lost: str) -> None:
    entry = azure_answers.usage("cores", 10)
    del entry[lost]
    with pytest.raises(AzureRefused, match="has an entry of another form"):
        usages(Azure(usages=[entry]).rest, SUBSCRIPTION, PLACE)


@pytest.mark.parametrize(
    ("skus", "quotas"),
    [
        ("standard NDAMSv4_A100Family", "Standard NDAMSv4_A100Family"),
        ("Standard NDASv4_A100 Family", "StandardNDASv4_A100Family"),
        ("standardNDSv2Family", "StandardNDSv2Family"),
        ("standardNDISRH200V5Family", "standardNDISRH200v5Family"),
    ],
)
def test_families_are_one_however_azure_spells_them(skus: str, quotas: str) -> None:
    assert family_key(skus) == family_key(quotas)


def test_what_is_offered_comes_with_zones_quota_and_capabilities() -> None:
    found = offer(sku())
    assert found.available
    assert (found.zones, found.family, found.vcpus, found.rdma, found.spot) == (
        ("1", "2"),
        FAMILY,
        40,
        True,
        True,
    )


def test_sizes_are_found_in_any_case() -> None:
    assert offer(sku("STANDARD_ND40RS_V2")).offered


@pytest.mark.parametrize("entries", [[], [sku(place="westus")], [sku("Standard_ND40s_v3")]])
def test_what_the_list_does_not_name_is_not_offered(entries: list[dict[str, Any]]) -> None:
    assert not offer(*entries).offered


@pytest.mark.parametrize("reason", ["NotAvailableForSubscription", "QuotaId"])
def test_a_closed_region_says_why(reason: str) -> None:
    found = offer(sku(restrictions=(closed(reason=reason),)))
    assert (found.offered, found.available, found.restricted) == (True, False, reason)


def test_another_region_that_is_closed_closes_nothing_here() -> None:
    assert offer(sku(restrictions=(closed("westus"),))).available


def test_closed_zones_are_no_zones() -> None:
    found = offer(sku(zones=("1", "2", "3"), restrictions=(closed_zones("3", "1"),)))
    assert (found.available, found.zones, found.closed_zones) == (True, ("2",), ("1", "3"))


def test_what_the_capabilities_do_not_say_is_unknown() -> None:
    entry = sku() | {"capabilities": []}
    found = offer(entry)
    assert (found.vcpus, found.rdma, found.spot) == (None, None, None)
    assert offer(sku(RdmaEnabled="False")).rdma is False
    assert offer(sku(RdmaEnabled="maybe")).rdma is None


def test_other_regions_are_those_that_are_open() -> None:
    azure = Azure(
        skus=[
            sku(place="westus2"),
            sku(place="EastUS"),
            sku(place="uksouth", restrictions=(closed("uksouth"),)),
            sku("Standard_D2s_v5", place="northeurope"),
        ]
    )
    assert regions_offering(azure.rest, SUBSCRIPTION, SIZE) == ("eastus", "westus2")


def test_a_scale_set_says_what_it_has() -> None:
    azure = Azure(there=azure_answers.scale_set(3, place="South Central US", priority="Spot"))
    assert scale_set(azure.rest, SUBSCRIPTION, "g", "s") == ScaleSet(SIZE, 3, True, PLACE)
    azure.there = azure_answers.scale_set(0, created="2026-03-01T09:05:07.1234567+00:00")
    made = datetime(2026, 3, 1, 9, 5, 7, 123456, UTC)
    assert scale_set(azure.rest, SUBSCRIPTION, "g", "s") == ScaleSet(SIZE, 0, False, PLACE, made)


def test_a_scale_sets_vms_have_the_disks_of_their_time_the_oldest_first() -> None:
    vms = [azure_answers.vm(10, 512), azure_answers.vm(9, 256), azure_answers.vm(2, 128)]
    vms.append(azure_answers.vm(3, 80, diffDiskSettings={"option": "Local"}))  # on the node: not billed
    azure = Azure(
        there=azure_answers.scale_set(4),
        details={"virtualMachineScaleSets/s/virtualMachines": {"value": vms}},
    )
    found = scale_set(azure.rest, SUBSCRIPTION, "g", "s")
    assert found is not None
    assert found.disks == (128, 256, 512)


def test_no_scale_set_is_none_and_an_error_is_an_error() -> None:
    assert scale_set(Azure().rest, SUBSCRIPTION, "g", "s") is None
    azure = Azure(instead={"virtualMachineScaleSets": error(500, "InternalError")})
    with pytest.raises(AzureRefused, match="InternalError"):
        scale_set(azure.rest, SUBSCRIPTION, "g", "s")
