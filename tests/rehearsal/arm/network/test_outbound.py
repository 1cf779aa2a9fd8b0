"""Which subnets reach the internet: those with a NAT gateway, and those that Azure gives default access."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rehearsal import bodies
from tests.rehearsal.bodies import ADDRESS, BALANCER, NETWORK, SCALE_SET, VNET
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines

GATEWAY = f"{NETWORK}/natGateways/out"
HERE = {"location": "westeurope", "sku": {"name": "Standard"}}
OUT = {"natGateway": {"id": f"{BASE}/{GATEWAY}"}}


@pytest.mark.parametrize(
    ("subnet", "expected"),
    [
        ({}, ()),
        (OUT, ("10.0.0.0/20",)),
        ({"defaultOutboundAccess": None}, ("10.0.0.0/20",)),
        ({"defaultOutboundAccess": True}, ("10.0.0.0/20",)),
    ],
)
def test_a_subnet_reaches_the_internet_by_a_gateway_or_by_default(
    azure: Endpoint, recorded: RecordingMachines, subnet: dict[str, Any], expected: tuple[str, ...]
) -> None:
    make(azure, publicIpAddresses=[{"id": f"{BASE}/{ADDRESS}"}])
    assert azure.settle("PUT", VNET, bodies.vnet(**subnet))["status"] == "Succeeded"
    assert recorded.outbound[f"{BASE}/{VNET}"] == expected


def test_a_gateway_without_an_address_leads_nowhere(azure: Endpoint, recorded: RecordingMachines) -> None:
    make(azure)
    azure.settle("PUT", VNET, bodies.vnet(**OUT))
    assert recorded.outbound[f"{BASE}/{VNET}"] == ()


def test_a_gateway_that_a_subnet_gets_or_loses_counts_at_once(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    make(azure, publicIpAddresses=[{"id": f"{BASE}/{ADDRESS}"}])
    azure.settle("PUT", VNET, bodies.vnet())
    own = bodies.vnet(**OUT)["properties"]["subnets"][0]
    azure.settle("PUT", f"{VNET}/subnets/nodes", own)
    assert recorded.outbound[f"{BASE}/{VNET}"] == ("10.0.0.0/20",)
    azure.settle("PUT", f"{VNET}/subnets/nodes", bodies.vnet()["properties"]["subnets"][0])
    assert recorded.outbound[f"{BASE}/{VNET}"] == ()


def test_nodes_behind_a_load_balancer_have_no_default_access(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    make(azure)
    azure.settle("PUT", VNET, bodies.vnet(defaultOutboundAccess=True))
    azure.settle("PUT", BALANCER, bodies.balancer())
    assert recorded.outbound[f"{BASE}/{VNET}"] == ("10.0.0.0/20",)
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(1))["status"] == "Succeeded"
    assert recorded.outbound[f"{BASE}/{VNET}"] == ()


def make(azure: Endpoint, **gateway: Any) -> None:
    """Make the group, a public address and a NAT gateway."""
    azure.ask("PUT", BASE, {"location": "westeurope"})
    for path, body in ((ADDRESS, bodies.address()), (GATEWAY, {**HERE, "properties": gateway})):
        assert azure.settle("PUT", path, body)["status"] == "Succeeded"
