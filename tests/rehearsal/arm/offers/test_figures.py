"""Figures that a test sets: quota, sizes that are closed, prices."""

from __future__ import annotations

from infra.arm.rest import Rest
from infra.preflight.availability import offer_of, offers
from infra.preflight.prices import vm_prices
from tests.rehearsal.bodies import SCALE_SET, build, scale_set
from tests.rehearsal.doubles import SUBSCRIPTION_ID, TOKEN, Endpoint, RecordingMachines

SIZE, FAMILY = "Standard_ND40rs_v2", "standardNDSv2Family"


def test_a_quota_is_shown_and_holds(azure: Endpoint, recorded: RecordingMachines) -> None:
    azure.services.market.figures.limits[FAMILY] = 120
    build(azure, 2)
    quotas = {one.name.value: one for one in azure.clients().compute.usage.list("westeurope")}
    assert (quotas[FAMILY].limit, quotas[FAMILY].current_value) == (120, 80)
    refused = azure.settle("PUT", SCALE_SET, scale_set(4))
    assert (refused["http"], refused["error"]["code"]) == (409, "OperationNotAllowed")
    assert "Current Limit: 120, Current Usage: 80, Additional Required: 80" in refused["error"]["message"]
    assert len(recorded.booted()) == 2
    assert azure.settle("PUT", SCALE_SET, scale_set(3))["status"] == "Succeeded"


def test_what_is_deallocated_counts_for_nothing(azure: Endpoint) -> None:
    build(azure, 2)
    compute = azure.clients().compute
    compute.virtual_machine_scale_sets.begin_deallocate("lab", "nodes", {"instanceIds": ["0"]}).result(30)
    quotas = {one.name.value: one.current_value for one in compute.usage.list("westeurope")}
    assert quotas[FAMILY] == 40


def test_spot_vms_have_a_quota_of_their_own(azure: Endpoint) -> None:
    azure.services.market.figures.limits["lowPriorityCores"] = 40
    build(azure, 0)
    azure.settle("DELETE", SCALE_SET)
    body = scale_set(2)
    body["properties"]["virtualMachineProfile"]["priority"] = "Spot"
    refused = azure.settle("PUT", SCALE_SET, body)
    assert "exceeding approved lowPriorityCores Cores quota" in refused["error"]["message"]


def test_a_size_may_be_closed_to_the_subscription(azure: Endpoint) -> None:
    build(azure, 0)
    azure.services.market.figures.closed[SIZE] = "NotAvailableForSubscription"
    answer = offer_of(
        offers(Rest(azure.url, lambda: TOKEN), SUBSCRIPTION_ID, "westeurope"), SIZE, "westeurope"
    )
    assert answer.restricted == "NotAvailableForSubscription"
    assert azure.settle("PUT", SCALE_SET, scale_set(1))["error"]["code"] == "SkuNotAvailable"


def test_a_price_may_be_any_or_none(azure: Endpoint) -> None:
    azure.services.market.figures.prices |= {(SIZE, False): 22.5, (SIZE, True): None}
    answer = vm_prices(Rest(azure.url, lambda: TOKEN), SIZE, "westeurope")
    assert (answer.regular, answer.spot) == (22.5, None)


def test_sizes_tell_what_is_known_of_them(azure: Endpoint) -> None:
    found = azure.clients().compute.resource_skus.list(filter="location eq 'westeurope'")
    (size,) = [one for one in found if one.name == SIZE]
    answer = {c.name: c.value for c in size.capabilities}
    assert {"vCPUs": "40", "GPUs": "8", "MemoryGB": "672", "RdmaEnabled": "True"}.items() <= answer.items()
    assert size.family == FAMILY
