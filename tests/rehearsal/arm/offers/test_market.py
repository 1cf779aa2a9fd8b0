"""What the emulated Azure sells, as Microsoft's clients and the project's own questions see it."""

from __future__ import annotations

import pytest

from catalogue.sizes import catalogue
from images.os_images import default_image
from infra.arm.rest import Rest
from infra.cluster.shared.nfs_vm import SERVER_SIZE
from infra.preflight.availability import (
    family_key,
    machine_size,
    offer_of,
    offers,
    regions_offering,
    scale_set,
    usages,
)
from infra.preflight.meters import ADDRESS, ENDPOINT, NAT, NFS_SHARE, premium_disk
from infra.preflight.prices import meter_price, vm_prices
from rehearsal.arm.offers import market
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from tests.rehearsal.bodies import build
from tests.rehearsal.doubles import SUBSCRIPTION_ID, TOKEN, Endpoint, RecordingMachines, endpoint

SIZE = "Standard_ND40rs_v2"
SIZES = [one.name for one in catalogue() if one.image and default_image(one.image) and one.vcpus]


def rest(azure: Endpoint) -> Rest:
    return Rest(azure.url, lambda: TOKEN)


def test_microsofts_clients_read_quotas_and_sizes(azure: Endpoint) -> None:
    compute = azure.clients().compute
    quotas = {one.name.value: (one.limit, one.current_value) for one in compute.usage.list("westeurope")}
    assert quotas["cores"] == (market.REGION_LIMIT, 0)
    sizes = {one.name: one for one in compute.resource_skus.list(filter="location eq 'westeurope'")}
    assert sizes[SIZE].locations == ["westeurope"]
    assert {c.name: c.value for c in sizes[SIZE].capabilities}["RdmaEnabled"] == "True"
    assert sizes[SIZE].location_info[0].zones == ["1", "2"]


@pytest.mark.parametrize("size", [*SIZES, SERVER_SIZE])
def test_every_size_that_the_program_takes_is_offered_priced_and_has_a_quota(
    size: str, azure: Endpoint
) -> None:
    client = rest(azure)
    found = offer_of(offers(client, SUBSCRIPTION_ID, "westeurope"), size, "westeurope")
    assert found.available
    assert found.family is not None
    known = {family_key(usage.name) for usage in usages(client, SUBSCRIPTION_ID, "westeurope")}
    assert family_key(found.family) in known
    priced = vm_prices(client, size, "westeurope")
    assert priced.regular is not None
    assert priced.spot is not None
    assert priced.spot < priced.regular


def test_the_catalogue_and_the_sizes_agree_about_infiniband(azure: Endpoint) -> None:
    listed = offers(rest(azure), SUBSCRIPTION_ID, "westeurope")
    for size in catalogue():
        found = offer_of(listed, size.name, "westeurope")
        assert not found.offered or found.rdma is size.rdma, size.name


@pytest.mark.parametrize("meter", [NAT, ADDRESS, ENDPOINT, NFS_SHARE, premium_disk(512)])
def test_everything_else_that_the_program_makes_has_a_price(meter: object, azure: Endpoint) -> None:
    assert meter_price(rest(azure), meter, "westeurope") is not None  # type: ignore[arg-type]


def test_a_long_list_of_prices_comes_in_pages(azure: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = vm_prices(rest(azure), SIZE, "westeurope")
    monkeypatch.setattr(market, "PAGE", 1)
    assert vm_prices(rest(azure), SIZE, "westeurope") == whole


def test_what_is_used_is_counted_from_the_vms_that_are_there(azure: Endpoint) -> None:
    build(azure, 3)
    found = {usage.name: usage.used for usage in usages(rest(azure), SUBSCRIPTION_ID, "westeurope")}
    assert (found["cores"], found["standardNDSv2Family"], found["lowPriorityCores"]) == (120, 120, 0)
    elsewhere = {usage.name: usage.used for usage in usages(rest(azure), SUBSCRIPTION_ID, "eastus")}
    assert elsewhere["cores"] == 0
    there = scale_set(rest(azure), SUBSCRIPTION_ID, "lab", "nodes")
    assert there is not None
    assert (there.capacity, there.location) == (3, "westeurope")
    assert machine_size(rest(azure), SUBSCRIPTION_ID, "lab", "none") is None


def test_all_regions_are_listed_without_a_filter(azure: Endpoint) -> None:
    assert set(regions_offering(rest(azure), SUBSCRIPTION_ID, SIZE)) == {
        "eastus",
        "southcentralus",
        "westus2",
    }


def test_faults_show_before_they_strike(recorded: RecordingMachines) -> None:
    faults = ArmFaults()
    with endpoint(recorded, faults) as azure:
        faults.set(fault_spec("quota"))
        faults.set(fault_spec("sku"))
        assert all(usage.left == 0 for usage in usages(rest(azure), SUBSCRIPTION_ID, "westeurope"))
        found = offer_of(offers(rest(azure), SUBSCRIPTION_ID, "westeurope"), SIZE, "westeurope")
        assert found.restricted == "NotAvailableForSubscription"
        # One that lets some pass comes as a surprise.
        faults.set(fault_spec("quota", after=1))
        assert all(usage.left > 0 for usage in usages(rest(azure), SUBSCRIPTION_ID, "westeurope"))
