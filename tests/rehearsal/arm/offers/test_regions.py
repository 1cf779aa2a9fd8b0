"""The emulated Azure knows Azure's regions, which sizes some of them have, and what it does not know."""

from __future__ import annotations

import pytest

from infra.arm.errors import AzureRefused
from infra.arm.rest import Rest
from infra.preflight.availability import offer_of, offers, usages
from infra.preflight.prices import vm_prices
from rehearsal.arm.offers.regions import REGIONS, SURVEYED, is_offered
from tests.rehearsal.bodies import ADDRESS, SCALE_SET, build, scale_set
from tests.rehearsal.doubles import BASE, SUBSCRIPTION_ID, TOKEN, Endpoint

SIZE, ELSEWHERE = "Standard_ND40rs_v2", "Standard_ND96isr_H100_v5"


def rest(azure: Endpoint) -> Rest:
    return Rest(azure.url, lambda: TOKEN)


def test_a_group_in_no_region_is_refused_in_azures_words(azure: Endpoint) -> None:
    status, answer, _ = azure.ask("PUT", BASE, {"location": "mars"})
    assert (status, answer["error"]["code"]) == (400, "LocationNotAvailableForResourceGroup")
    words = answer["error"]["message"]
    assert words.startswith("The provided location 'mars' is not available for resource group. List of ")
    assert "southcentralus" in words
    assert azure.subscription.groups == {}


@pytest.mark.parametrize("location", ["mars", "global", ""])
def test_so_is_a_resource(azure: Endpoint, location: str) -> None:
    azure.ask("PUT", BASE, {"location": "westeurope"})
    status, answer, _ = azure.ask("PUT", ADDRESS, {"location": location})
    assert (status, answer["error"]["code"]) == (400, "LocationNotAvailableForResourceType")
    assert "for resource type 'Microsoft.Network/publicIPAddresses'" in answer["error"]["message"]


@pytest.mark.parametrize("location", ["southcentralus", "South Central US", "SouthCentralUS"])
def test_a_region_is_known_by_both_its_names(azure: Endpoint, location: str) -> None:
    assert azure.ask("PUT", BASE, {"location": location})[0] == 201


def test_a_region_that_is_none_offers_nothing_at_any_price_and_has_no_quota(azure: Endpoint) -> None:
    assert offers(rest(azure), SUBSCRIPTION_ID, "mars") == []
    assert vm_prices(rest(azure), SIZE, "mars").regular is None
    with pytest.raises(AzureRefused, match="No registered resource provider found for location 'mars'"):
        usages(rest(azure), SUBSCRIPTION_ID, "mars")


def test_a_size_that_a_region_does_not_have_is_refused_and_not_listed(azure: Endpoint) -> None:
    build(azure, 0)
    listed = offers(rest(azure), SUBSCRIPTION_ID, "southcentralus")
    assert not offer_of(listed, ELSEWHERE, "southcentralus").offered
    body = scale_set(1)
    body["location"], body["sku"]["name"] = "southcentralus", ELSEWHERE
    refused = azure.settle("PUT", f"{SCALE_SET}2", body)
    assert (refused["http"], refused["error"]["code"]) == (409, "SkuNotAvailable")


@pytest.mark.parametrize(
    ("size", "region", "offered", "known"),
    [
        (SIZE, "southcentralus", True, True),
        (SIZE, "eastus2", False, True),
        (SIZE, "westeurope", True, False),
        ("Standard_ND96isr_H200_v5", "eastus", True, False),
    ],
)
def test_what_is_not_known_is_marked_as_such(
    azure: Endpoint, size: str, region: str, offered: bool, known: bool
) -> None:
    offer = offer_of(offers(rest(azure), SUBSCRIPTION_ID, region), size, region)
    assert (offer.offered, offer.known) == (offered, known)


def test_the_lists_are_of_one_mind() -> None:
    assert set(REGIONS) > SURVEYED
    assert len(set(REGIONS)) == len(REGIONS)
    assert is_offered("standard_nd40RS_v2", "eastus")
