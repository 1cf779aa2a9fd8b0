"""What each type refuses before anything changes, and what outlives a failure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rehearsal import bodies
from tests.rehearsal.bodies import ADDRESS, BALANCER, NETWORK, SCALE_SET, VNET, build
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines, endpoint


@pytest.fixture(scope="module")
def built() -> Iterator[Endpoint]:
    with endpoint(RecordingMachines()) as azure:
        build(azure, 1)
        yield azure


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The body with one value changed, or taken out with None."""
    result = copy.deepcopy(body)
    *parents, last = path.split(".")
    at: Any = result
    for name in parents:
        at = at[int(name)] if isinstance(at, list) else at[name]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return result


_OS = "properties.virtualMachineProfile.osProfile"
_NIC = "properties.virtualMachineProfile.networkProfile.networkInterfaceConfigurations.0"
_IP = f"{_NIC}.properties.ipConfigurations.0"
_RULE = "properties.inboundNatRules.0.properties"


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("sku", {"tier": "Standard"}, "InvalidParameter"),
        ("sku.capacity", -1, "InvalidParameter"),
        ("properties.upgradePolicy", None, "InvalidParameter"),
        ("properties.orchestrationMode", "Flexible", "InvalidParameter"),
        ("properties.virtualMachineProfile", None, "InvalidParameter"),
        (f"{_OS}.computerNamePrefix", None, "InvalidParameter"),
        (f"{_OS}.adminUsername", None, "InvalidParameter"),
        (f"{_OS}.customData", "#cloud-config", "InvalidParameter"),
        (f"{_IP}.properties.subnet", None, "InvalidParameter"),
        (f"{_IP}.properties.subnet.id", bodies.SUBNET_ID + "2", "InvalidResourceReference"),
    ],
)
def test_a_new_scale_set_needs_all_that_makes_a_vm(built: Endpoint, path: str, value: Any, code: str) -> None:
    refused = built.settle("PUT", f"{SCALE_SET}2", changed(bodies.scale_set(1), path, value))
    assert (refused["http"], refused["error"]["code"]) == (400, code)
    assert built.ask("GET", f"{SCALE_SET}2")[0] == 404


@pytest.mark.parametrize(
    ("path", "value"),
    [(f"{_OS}.adminUsername", "root"), (f"{_OS}.computerNamePrefix", "other")],
)
def test_what_makes_the_vms_alike_never_changes(built: Endpoint, path: str, value: str) -> None:
    refused = built.settle("PUT", SCALE_SET, changed(bodies.scale_set(1), path, value))
    assert (refused["http"], refused["error"]["code"]) == (409, "PropertyChangeNotAllowed")


def test_a_placement_group_given_up_is_not_given_back(azure: Endpoint) -> None:
    build(azure, 0)
    without = changed(bodies.scale_set(0), "properties.singlePlacementGroup", False)
    assert azure.settle("PUT", SCALE_SET, without)["status"] == "Succeeded"
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(0))["error"]["code"] == "PropertyChangeNotAllowed"


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (f"{_RULE}.frontendPortRangeEnd", 49999, "InvalidInboundNatRulePortRange"),
        (f"{_RULE}.backendPort", None, "InvalidInboundNatRulePortRange"),
        ("sku.name", "Basic", "PropertyChangeNotAllowed"),
        ("properties.backendAddressPools", [], "LoadBalancerInUseByVirtualMachineScaleSet"),
    ],
)
def test_a_balancers_rules_must_work(built: Endpoint, path: str, value: Any, code: str) -> None:
    assert built.settle("PUT", BALANCER, changed(bodies.balancer(), path, value))["error"]["code"] == code


def test_nat_rules_of_one_frontend_do_not_share_ports(built: Endpoint) -> None:
    body = bodies.balancer()
    rule = copy.deepcopy(body["properties"]["inboundNatRules"][0])
    rule["name"] = "again"
    rule["properties"].update(frontendPortRangeStart=50499, frontendPortRangeEnd=50600)
    body["properties"]["inboundNatRules"].append(rule)
    refused = built.settle("PUT", BALANCER, body)
    assert refused["error"]["code"] == "RulesUseSameFrontendPortProtocolAndIPConfig"


def test_security_rules_of_one_direction_have_their_own_priorities(built: Endpoint) -> None:
    rule = {"priority": 100, "direction": "Inbound", "access": "Allow", "protocol": "Tcp"}
    rules = [{"name": n, "properties": rule} for n in ("a", "b")]
    body = {"location": "westeurope", "properties": {"securityRules": rules}}
    refused = built.settle("PUT", f"{NETWORK}/networkSecurityGroups/nsg", body)
    assert refused["error"]["code"] == "SecurityRuleConflict"


def test_a_guard_and_a_way_out_are_held_by_their_subnet(azure: Endpoint) -> None:
    azure.ask("PUT", BASE, {"location": "westeurope"})
    held = {"networkSecurityGroup": "networkSecurityGroups/nsg", "natGateway": "natGateways/nat"}
    for path in held.values():
        assert azure.settle("PUT", f"{NETWORK}/{path}", {"location": "westeurope"})["status"] == "Succeeded"
    subnet = {name: {"id": f"{BASE}/{NETWORK}/{path}"} for name, path in held.items()}
    assert azure.settle("PUT", VNET, bodies.vnet(**subnet))["status"] == "Succeeded"
    for path in held.values():
        assert azure.ask("GET", f"{NETWORK}/{path}")[1]["properties"]["subnets"] == [{"id": bodies.SUBNET_ID}]
        assert "CannotBeDeleted" in azure.settle("DELETE", f"{NETWORK}/{path}")["error"]["code"]
    assert azure.settle("DELETE", VNET)["status"] == "Succeeded"
    for path in held.values():
        assert azure.settle("DELETE", f"{NETWORK}/{path}")["status"] == "Succeeded"


def test_a_network_changes_its_prefix_only_while_it_is_empty(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    build(azure, 0)
    body = changed(
        bodies.vnet(addressPrefix="10.1.0.0/20"), "properties.addressSpace.addressPrefixes", ["10.1.0.0/16"]
    )
    assert azure.settle("PUT", VNET, body)["status"] == "Succeeded"
    assert recorded.networks == {f"{BASE}/{VNET}": "10.1.0.0/16"}
    assert azure.settle("PUT", SCALE_SET, bodies.scale_set(1))["status"] == "Succeeded"
    failed = azure.settle("PUT", VNET, bodies.vnet())
    assert failed["error"]["code"] == "InUsePrefixCannotBeDeleted"
    assert recorded.networks == {f"{BASE}/{VNET}": "10.1.0.0/16"}


def test_a_group_that_goes_takes_nothing_new(azure: Endpoint, recorded: RecordingMachines) -> None:
    build(azure, 0)
    recorded.boot_seconds = 2.0  # longer than the questions take on a busy machine
    azure.ask("PUT", SCALE_SET, bodies.scale_set(1))
    assert azure.ask("DELETE", BASE)[0] == 202
    assert azure.ask("PUT", ADDRESS, bodies.address())[1]["error"]["code"] == "ResourceGroupBeingDeleted"
    assert azure.ask("DELETE", BASE)[0] == 202
    while azure.ask("GET", BASE)[0] == 200:
        pass
    assert (recorded.networks, recorded.up) == ({}, {})


def test_a_rule_that_comes_later_gets_ports_for_the_vms_that_are_there(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    build(azure, 2)
    rule = bodies.balancer()["properties"]["inboundNatRules"][0]
    assert azure.settle("DELETE", f"{BALANCER}/inboundNatRules/ssh")["status"] == "Succeeded"
    assert recorded.forwards == {}
    later = changed(rule, "properties.frontendPortRangeStart", 50100)
    assert azure.settle("PUT", f"{BALANCER}/inboundNatRules/ssh", later)["status"] == "Succeeded"
    assert sorted(port for _, (_, port) in recorded.forwards) == [50100, 50101]
