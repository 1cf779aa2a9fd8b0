"""Whether Azure will grant a cluster and what it costs, decided before anything is made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.arm.errors import AzureRefused
from infra.cluster.shared.nfs_vm import SERVER_SIZE
from infra.preflight.availability import ScaleSet, Usage
from infra.preflight.decide import Plan
from infra.preflight.meters import ADDRESS, ENDPOINT, NAT, NFS_SHARE, premium_disk
from infra.preflight.prices import Prices
from infra.preflight.quota import QUOTA_LINK
from infra.preflight.refusal import NotGranted
from tests.infra.azure_answers import FAMILY, PLACE, SIZE, closed, closed_zones, sku
from tests.infra.preflight.stack_figures import OFFLINE, PRICES, against, figures, plan, quotas


def test_a_cluster_that_azure_will_grant_has_nothing_against_it() -> None:
    found = plan()
    found.check()
    assert (found.nodes, found.there, found.adding, found.offered) == (4, 0, 4, True)
    assert found.zones == ("1", "2")


# -- price


def test_the_price_is_that_of_the_nodes_and_of_all_that_is_billed_by_the_hour() -> None:
    found = plan()
    assert found.regular_per_hour == pytest.approx(4 * 22.0 + 0.045 + 2 * 0.005)
    assert found.spot_per_hour == pytest.approx(4 * 4.0 + 0.045 + 2 * 0.005)
    assert found.per_hour == found.regular_per_hour
    assert plan(spot="true").per_hour == found.spot_per_hour


def test_the_price_of_one_node_is_that_of_the_configured_priority() -> None:
    assert plan().node_per_hour == 22.0
    assert plan(spot="true").node_per_hour == 4.0
    assert plan(figures(prices=Prices(22.0, None)), spot="true").node_per_hour is None


def test_an_unknown_price_of_the_nodes_leaves_the_sum_unknown() -> None:
    found = plan(figures(prices=Prices(22.0, None)))
    assert found.spot_per_hour is None
    assert found.regular_per_hour is not None
    assert f"spot price of {SIZE}: the price list has no entry for {PLACE}" in found.unknowns
    assert found.refusals == ()


def test_a_price_list_out_of_reach_is_said_and_stops_nobody_who_set_no_limit() -> None:
    found = plan(figures(prices=OFFLINE, meters={NAT: OFFLINE, ADDRESS: OFFLINE}))
    assert (found.regular_per_hour, found.spot_per_hour) == (None, None)
    assert found.refusals == ()
    assert [text for text in found.unknowns if "Network is unreachable" in text]


@pytest.mark.parametrize(
    ("limit", "settings", "fits"),
    [
        ("88.06", {}, True),
        ("88.05", {}, False),
        ("16.06", {"spot": "true"}, True),
        ("16.05", {"spot": "true"}, False),
        ("44.1", {"nodeCount": "2"}, True),
    ],
)
def test_the_limit_is_for_the_whole_cluster(limit: str, settings: dict[str, str], fits: bool) -> None:
    found = plan(None, maxPrice=limit, **settings)
    assert against(found) == ([] if fits else ["price"])


def test_a_price_that_is_just_the_limit_is_within_it() -> None:
    price = plan().per_hour
    assert plan(None, maxPrice=repr(price)).refusals == ()


def test_too_dear_says_both_figures() -> None:
    (refusal,) = plan(maxPrice="50").refusals
    assert "88.055 USD per hour is more than ranklift:maxPrice allows, 50 USD per hour" in refusal.problem


@pytest.mark.parametrize("prices", [Prices(None, 4.0), OFFLINE])
def test_an_unknown_price_is_more_than_any_limit(prices: Any) -> None:
    (refusal,) = plan(figures(prices=prices), maxPrice="1000").refusals
    assert refusal.about == "price"
    assert "is unknown" in refusal.problem


# -- quota


def test_a_quota_that_is_too_small_is_refused_with_figures_and_where_to_ask() -> None:
    found = plan(figures(usages=quotas(family=100, used=40)))
    (refusal,) = found.refusals
    assert refusal.problem == (
        "Standard NDSv2 Family vCPUs in southcentralus: 160 more are needed, 60 are left (limit 100, used 40)"
    )
    assert "at least 200" in refusal.remedy
    assert QUOTA_LINK in refusal.remedy
    with pytest.raises(NotGranted, match="60 are left") as raised:
        found.check()
    assert raised.value.refusals == found.refusals


@pytest.mark.parametrize(
    ("changed", "fits"), [({"cores": 159}, False), ({"family": 160}, True), ({"family": 159}, False)]
)
def test_family_and_region_both_have_to_have_room(changed: dict[str, int], fits: bool) -> None:
    assert (plan(figures(usages=quotas(**changed))).refusals == ()) is fits


def test_spot_nodes_count_against_their_own_quota_alone() -> None:
    assert plan(figures(usages=quotas(family=0, cores=0)), spot="true").refusals == ()
    (line,) = plan(figures(usages=quotas(spot=200)), spot="true").quotas
    assert (line.name, line.needed, line.after) == ("lowPriorityCores", 160, 40)
    assert against(plan(figures(usages=quotas(spot=159)), spot="true")) == ["quota"]


def test_nodes_that_are_there_count_for_nothing() -> None:
    there = ScaleSet(SIZE, 3, False, PLACE)
    found = plan(figures(there=there, usages=quotas(family=160, used=120)))
    assert (found.there, found.adding) == (3, 1)
    assert found.refusals == ()
    assert [(line.needed, line.left, line.after) for line in found.quotas] == [(40, 40, 0), (40, 280, 240)]


def test_a_cluster_that_only_shrinks_asks_for_nothing_even_when_the_quota_was_lowered() -> None:
    there = ScaleSet(SIZE, 6, False, PLACE)
    found = plan(figures(there=there, usages=quotas(family=0, cores=0, used=240), skus=[]))
    assert found.adding == 0
    assert found.refusals == ()


def test_nodes_of_another_size_go_first_and_free_their_quota() -> None:
    other = sku("Standard_ND96asr_v4", family="Standard NDASv4_A100 Family", vCPUs="96")
    there = ScaleSet("Standard_ND96asr_v4", 2, False, PLACE)
    found = plan(figures(there=there, skus=[sku(), other], usages=quotas(family=160, cores=210, used=0)))
    assert found.adding == 4
    assert [(line.name, line.needed) for line in found.quotas] == [(FAMILY, 160), ("cores", 0)]


def test_spot_nodes_are_no_part_of_a_regular_cluster() -> None:
    assert plan(figures(there=ScaleSet(SIZE, 3, True, PLACE))).adding == 4


def test_nodes_elsewhere_free_nothing_here() -> None:
    found = plan(figures(there=ScaleSet(SIZE, 4, False, "westus"), usages=quotas(family=159)))
    assert against(found) == ["quota"]


def test_a_quota_that_could_not_be_asked_is_refused_with_the_reason_and_a_way_on() -> None:
    (refusal,) = plan(figures(usages=AzureRefused("the signed-in identity lacks the right x"))).refusals
    assert "lacks the right x" in refusal.problem
    assert "pulumi up" in refusal.remedy


@pytest.mark.parametrize("names", [["cores"], [FAMILY], []])
def test_a_quota_that_azure_does_not_name_is_not_zero_but_unknown(names: list[str]) -> None:
    found = plan(figures(usages=[one for one in quotas() if one.name in names]))
    assert against(found) == ["quota"] * (2 - len(names))
    assert all("Azure lists none" in one.problem for one in found.refusals)


def test_the_family_that_the_list_of_sizes_leaves_out_is_unknown() -> None:
    (refusal,) = plan(figures(skus=[sku(family=None)])).refusals
    assert "list of sizes names none for" in refusal.problem


# -- what is offered


def test_a_size_that_is_not_offered_is_refused_with_the_regions_that_offer_it() -> None:
    (refusal,) = plan(figures(skus=[], elsewhere=("eastus", "westus2"))).refusals
    assert refusal.problem == f"{SIZE} is not offered in {PLACE}"
    assert "ranklift:location to one that offers it: eastus, westus2" in refusal.remedy
    (refusal,) = plan(figures(skus=[], elsewhere=())).refusals
    assert "no region offers it to this subscription" in refusal.remedy


@pytest.mark.parametrize("reason", ["NotAvailableForSubscription", "QuotaId"])
def test_a_closed_region_is_refused_with_azures_reason(reason: str) -> None:
    (refusal,) = plan(figures(skus=[sku(restrictions=(closed(reason=reason),))])).refusals
    assert refusal.about == "size"
    assert reason in refusal.problem


@pytest.mark.parametrize(("zone", "why"), [("2", None), ("1", "is closed"), ("3", "does not have it")])
def test_a_zone_has_to_be_open(zone: str, why: str | None) -> None:
    found = plan(figures(skus=[sku(restrictions=(closed_zones("1"),))]), zone=zone)
    assert [why in one.problem for one in found.refusals if why] == ([True] if why else [])
    assert bool(found.refusals) is (why is not None)


def test_azure_may_contradict_the_catalogue_about_infiniband() -> None:
    assert against(plan(figures(skus=[sku(RdmaEnabled="False")]))) == ["InfiniBand"]
    unsaid = sku()
    unsaid["capabilities"] = [one for one in unsaid["capabilities"] if one["name"] != "RdmaEnabled"]
    found = plan(figures(skus=[unsaid]))
    assert found.refusals == ()
    assert any(text.startswith("InfiniBand") for text in found.unknowns)


def test_what_a_rehearsal_does_not_know_of_a_region_is_said_and_refuses_nothing() -> None:
    found = plan(figures(skus=[sku(RehearsalDoesNotKnowOffer="True")]))
    assert found.refusals == ()
    (line,) = [text for text in found.unknowns if text.startswith(f"whether {PLACE} offers {SIZE}")]
    assert "the rehearsal has no figures" in line


def test_a_size_that_was_taken_without_infiniband_may_have_none() -> None:
    size = "Standard_NC24ads_A100_v4"
    room = [*quotas(), Usage("StandardNCADSA100v4Family", "Standard NCADSA100v4", 200, 0)]
    skus = [sku(size, family="StandardNCADSA100v4Family", vCPUs="24", RdmaEnabled="False")]
    found = plan(figures(skus=skus, usages=room), vmSize=size, allowWithoutInfiniBand="true")
    assert found.refusals == ()


def test_a_size_that_cannot_be_spot_is_refused_as_spot_only() -> None:
    skus = [sku(LowPriorityCapable="False")]
    assert against(plan(figures(skus=skus), spot="true")) == ["size"]
    assert against(plan(figures(skus=skus))) == []


def test_a_list_of_sizes_that_could_not_be_asked_is_refused() -> None:
    found = plan(figures(skus=AzureRefused("Azure answered: no")))
    assert against(found) == ["size"]
    assert (found.offered, found.zones) == (None, None)


def test_everything_against_it_is_said_at_once() -> None:
    found = plan(figures(usages=quotas(family=0), skus=[sku(RdmaEnabled="False")]), maxPrice="1")
    assert against(found) == ["quota", "InfiniBand", "price"]
    with pytest.raises(NotGranted) as raised:
        found.check()
    first, *reasons = str(raised.value).splitlines()
    assert (first, len(reasons)) == ("stack dev is not created; nothing was changed:", 3)


@pytest.mark.parametrize("there", [ScaleSet(SIZE, 3, False, PLACE), OFFLINE])
def test_a_stack_that_is_up_or_may_be_is_not_said_not_to_be_made(there: object) -> None:
    with pytest.raises(NotGranted, match=r"^stack dev stays as it is; nothing was changed:"):
        plan(figures(there=there, usages=quotas(family=0))).check()


# -- what is made


def made(found: Plan) -> list[tuple[str, int]]:
    return [(cost.part.what, cost.part.count) for cost in found.costs]


def test_a_public_cluster_has_two_addresses_and_a_private_one_a_single() -> None:
    assert made(plan()).count(("public IP address", 1)) == 2
    assert made(plan(access="private")).count(("public IP address", 1)) == 1
    assert ("load balancer", 1) not in made(plan(access="private"))


SERVER = sku(SERVER_SIZE, family="standardESv5Family", vCPUs="8", RdmaEnabled="False")


def test_what_stores_costs_what_its_size_says() -> None:
    tier = premium_disk(512)
    assert tier is not None
    meters = {NAT: 0.045, ADDRESS: 0.005, ENDPOINT: 0.01, NFS_SHARE: 0.0002, tier: 0.1}
    files = plan(figures(meters=meters), nfs="files", storage="privateEndpoint")
    share = next(cost for cost in files.costs if cost.part.what == "NFS share")
    assert share.regular == pytest.approx(1024 * 0.0002)
    assert made(files).count(("private endpoint", 1)) == 2
    assert any("storage account" in text for text in files.unknowns)
    prices = {SIZE: PRICES, SERVER_SIZE: Prices(0.5, 0.1)}
    server = plan(figures(meters=meters, prices=prices, skus=[sku(), SERVER]), nfs="vm", spot="true")
    by_name = {cost.part.what: cost for cost in server.costs}
    # What serves the nodes is never spot.
    assert (by_name["NFS server"].regular, by_name["NFS server"].spot) == (0.5, 0.5)
    assert by_name["NFS disk"].regular == pytest.approx(0.2)


def test_an_nfs_server_counts_against_quotas_of_its_own_until_it_is_there() -> None:
    room = [*quotas(family=160, cores=168), Usage("StandardESv5Family", "Standard ESv5", 8, 0)]
    skus = [sku(), SERVER]
    found = plan(figures(skus=skus, usages=room), nfs="vm")
    assert [(line.label, line.needed) for line in found.quotas] == [
        ("Standard NDSv2 Family vCPUs", 160),
        ("Total Regional vCPUs", 168),
        ("Standard ESv5", 8),
    ]
    assert against(found) == []
    assert against(plan(figures(skus=skus, usages=quotas(family=160, cores=168)), nfs="vm")) == ["quota"]
    there = plan(figures(skus=skus, usages=quotas(family=160, cores=160), server=SERVER_SIZE), nfs="vm")
    assert against(there) == []


def test_a_given_network_is_not_made() -> None:
    network = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"
    in_vnet = plan(None, vnetId=network, subnetPrefix="10.9.0.0/24")
    assert not {"virtual network"} & {what for what, _ in made(in_vnet)}
    in_subnet = plan(None, subnetId=f"{network}/subnets/n", subnetPrefix="10.9.0.0/24", access="private")
    assert not {"subnet", "NAT gateway", "public IP address"} & {what for what, _ in made(in_subnet)}
    assert ("network security group", 1) in made(in_subnet)


USD = st.one_of(st.none(), st.floats(0.01, 500, allow_nan=False))


@given(
    prices=st.builds(Prices, USD, USD),
    nodes=st.integers(1, 100),
    limit=st.one_of(st.none(), st.floats(0.01, 50000, allow_nan=False)),
    quota=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    there=st.integers(0, 100),
    spot=st.booleans(),
)
def test_what_is_granted_fits(
    prices: Prices, nodes: int, limit: float | None, quota: tuple[int, int], there: int, spot: bool
) -> None:
    settings = {"nodeCount": str(nodes), "spot": str(spot).lower()}
    if limit is not None:
        settings["maxPrice"] = repr(limit)
    most, used = quota
    has = ScaleSet(SIZE, there, spot, PLACE)
    found = plan(figures(prices=prices, usages=quotas(most, most, most, used), there=has), **settings)
    each = prices.spot if spot else prices.regular
    assert found.adding == max(0, nodes - there)
    assert (found.per_hour is None) is (each is None)
    assert found.per_hour is None or found.per_hour >= nodes * (each or 0)
    assert found.refusals or limit is None or (found.per_hour is not None and found.per_hour <= limit)
    assert found.refusals or found.adding == 0 or found.adding * 40 <= max(0, most - used)
