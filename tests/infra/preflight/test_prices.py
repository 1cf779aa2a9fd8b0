"""The price list read: which of many meters is the one, and what is not known stays unknown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.arm.errors import AzureRefused
from infra.preflight.meters import ADDRESS, NAT, Meter
from infra.preflight.prices import MONTH_H, Prices, meter_price, vm_prices
from tests.infra.azure_answers import PLACE, SIZE, Azure, address, nat, price, spot

WINDOWS = {"productName": "Virtual Machines NDrv2 Series Windows"}
OTHERS = [
    price(26.0, **WINDOWS),
    spot(5.0, **WINDOWS),
    price(4.4, meterName="ND40rs v2 Low Priority", skuName="ND40rs v2 Low Priority"),
    price(1.0, type="DevTestConsumption"),
    price(99000.0, type="Reservation", reservationTerm="1 Year"),
    price(30.0, productName="NDrv2 Series Cloud Services"),
    price(22.5, armRegionName="westeurope"),
    price(50.0, effectiveStartDate="2999-01-01T00:00:00Z"),
    price(40.0, armSkuName="Standard_ND40s_v3"),
    price(25.0, unitOfMeasure="100 Hours"),
    price(18.0, tierMinimumUnits=1000.0),
    price(20.0, currencyCode="EUR"),
]
"""What the list has besides: other systems, other customers, other regions, other times."""


@pytest.mark.parametrize("turned", [1, -1])
def test_linux_by_the_hour_alone_counts(turned: int) -> None:
    azure = Azure(prices=[price(22.03), spot(3.97), *OTHERS][::turned])
    assert vm_prices(azure.rest, SIZE, PLACE) == Prices(22.03, 3.97)


@given(st.permutations([price(22.03), spot(3.97), *OTHERS]))
def test_the_order_of_the_list_does_not_matter(items: list[dict[str, Any]]) -> None:
    assert vm_prices(Azure(prices=items).rest, SIZE, PLACE) == Prices(22.03, 3.97)


@given(st.lists(st.sampled_from(OTHERS)))
def test_nothing_else_is_taken_for_the_price(items: list[dict[str, Any]]) -> None:
    assert vm_prices(Azure(prices=items).rest, SIZE, PLACE) == Prices(None, None)


@pytest.mark.parametrize("usd", [0, 0.0, None, "12"])
def test_a_price_of_nothing_is_no_price(usd: Any) -> None:
    assert vm_prices(Azure(prices=[price(usd)]).rest, SIZE, PLACE).regular is None


def test_of_several_the_primary_meters_count_and_of_those_the_highest() -> None:
    items = [price(30.0, isPrimaryMeterRegion=False), price(21.0), price(22.03)]
    assert vm_prices(Azure(prices=items).rest, SIZE, PLACE).regular == 22.03
    assert vm_prices(Azure(prices=items[:1]).rest, SIZE, PLACE).regular == 30.0


def test_the_size_is_found_however_the_user_spells_it_but_asked_for_as_azure_does() -> None:
    azure = Azure(prices=[price(22.03)])
    assert vm_prices(azure.rest, SIZE, PLACE).regular == 22.03
    assert f"armSkuName%20eq%20'{SIZE}'" in azure.asked[0]


def test_other_things_are_billed_by_meters_of_their_region_or_of_all() -> None:
    azure = Azure()
    assert meter_price(azure.rest, NAT, PLACE) == 0.045
    assert meter_price(azure.rest, ADDRESS, PLACE) == 0.005
    assert meter_price(azure.rest, ADDRESS, "westeurope") is None


def test_what_is_listed_by_the_month_costs_its_share_of_an_hour() -> None:
    disk = Meter("Storage", "P30 LRS Disk", "Premium SSD Managed Disks")
    names = {"serviceName": disk.service, "productName": disk.product, "meterName": disk.name}
    azure = Azure(prices=[price(146.0, unitOfMeasure="1/Month", **names)])
    assert meter_price(azure.rest, disk, PLACE) == pytest.approx(146.0 / MONTH_H)


def test_a_meter_of_another_product_is_another_meter() -> None:
    azure = Azure(prices=[address() | {"productName": "Cloud IP"}, nat() | {"meterName": "Standard gateway"}])
    assert meter_price(azure.rest, ADDRESS, PLACE) is None
    assert meter_price(azure.rest, NAT, PLACE) is None


def test_a_list_that_cannot_be_read_is_an_error_and_no_price() -> None:
    azure = Azure(instead={"/api/retail/prices": OSError(101, "Network is unreachable")})
    with pytest.raises(AzureRefused, match="Network is unreachable"):
        vm_prices(azure.rest, SIZE, PLACE)
