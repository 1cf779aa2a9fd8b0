"""How resources look when they are read: the body as asked for, with what Azure adds."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

from rehearsal.arm.auth.identities import show_assigned
from rehearsal.arm.core.behaviour import hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.registry import GROUP, kind_of
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.load_balancer import Member

__all__ = ["instance_view", "interface", "pool", "resource", "scale_set_view", "virtual_machine"]

_POOLS = "Microsoft.Network/loadBalancers/backendAddressPools"
_BACK_REFERENCES = {
    "Microsoft.Network/networkSecurityGroups": "subnets",
    "Microsoft.Network/natGateways": "subnets",
}


def resource(subscription: Subscription, rid: ResourceId) -> dict[str, Any]:
    """The answer to a GET of a resource, a resource group or a child."""
    record = subscription.find(rid)
    kind = kind_of(rid.type)
    if kind is not None and kind.embedded:
        return _child(subscription, record, subscription.element(rid), kind.collection)
    shown = copy.deepcopy(record.body)
    shown.update(id=str(record.id), name=record.id.name, type=record.kind.type)
    properties = shown.setdefault("properties", {})
    properties["provisioningState"] = record.state
    if record.kind is GROUP:
        return shown
    for collection in record.kind.children:
        elements = record.children(collection)
        properties[collection] = [_child(subscription, record, e, collection, brief=True) for e in elements]
    shown["etag"] = f'W/"{record.etag}"'
    if record.kind.type.startswith("Microsoft.Network/"):
        properties["resourceGuid"] = record.guid
    if record.address is not None:
        properties["ipAddress"] = record.address
        holder = next(subscription.holders(record.id), None)
        if holder is not None and holder.type.endswith("/frontendIPConfigurations"):
            properties["ipConfiguration"] = {"id": str(holder)}
    back = _BACK_REFERENCES.get(record.kind.type)
    if back is not None:
        properties[back] = [{"id": str(h)} for h in subscription.holders(record.id)]
    if record.kind.type == "Microsoft.Compute/virtualMachineScaleSets":
        properties["uniqueId"] = record.guid
        # Azure never gives these back.
        for secret in ("customData", "adminPassword"):
            properties["virtualMachineProfile"]["osProfile"].pop(secret, None)
    show_assigned(subscription, shown)
    hooks(record.kind).show(subscription, record, shown)
    return shown


def _child(
    subscription: Subscription, record: Record, element: dict[str, Any], collection: str, brief: bool = False
) -> dict[str, Any]:
    shown = copy.deepcopy(element)
    rid = record.id.child(collection, element.get("name", ""))
    shown.update(id=str(rid), type=rid.type, etag=f'W/"{record.etag}"')
    state = "Updating" if record.state == "Creating" else record.state
    shown.setdefault("properties", {})["provisioningState"] = state
    if rid.type == _POOLS:
        shown["properties"].update(pool(subscription, rid, brief))
    return shown


def pool(subscription: Subscription, rid: ResourceId, brief: bool = False) -> dict[str, Any]:
    """Who is in a backend pool; unless ``brief`` with the port of each NAT rule that leads there."""
    members = subscription.balancer.members(rid)
    shown: dict[str, Any] = {"backendIPConfigurations": [{"id": str(m.configuration_id)} for m in members]}
    if not brief:
        shown["loadBalancerBackendAddresses"] = [_address(subscription, m, rid) for m in members]
    return shown


def _address(subscription: Subscription, member: Member, rid: ResourceId) -> dict[str, Any]:
    mapping = subscription.balancer.mapping(member, rid)
    return {
        "name": hashlib.sha256(member.configuration_id.key.encode()).hexdigest()[:32],
        "properties": {
            "ipAddress": member.instance.machine.private_ip,
            "networkInterfaceIPConfiguration": {"id": str(member.configuration_id)},
            "inboundNatRulesPortMapping": [
                {k: m[k] for k in ("inboundNatRuleName", "frontendPort", "backendPort")} for m in mapping
            ],
        },
    }


def virtual_machine(record: Record, instance: Instance, alive: frozenset[str] | None) -> dict[str, Any]:
    """One VM of a scale set; with ``alive`` (names of running VMs) its instance view is in it."""
    profile = record.properties["virtualMachineProfile"]
    rid = record.id.child("virtualMachines", str(instance.id))
    machine = instance.machine
    system = {k: v for k, v in profile["osProfile"].items() if k not in ("customData", "computerNamePrefix")}
    nics = (profile.get("networkProfile") or {}).get("networkInterfaceConfigurations") or ()
    shown: dict[str, Any] = {
        "id": str(rid),
        "name": f"{record.id.name}_{instance.id}",
        "type": rid.type,
        "instanceId": str(instance.id),
        "location": record.body["location"],
        "tags": record.body.get("tags") or {},
        "sku": {"name": record.body["sku"]["name"], "tier": record.body["sku"].get("tier", "Standard")},
        "properties": {
            "latestModelApplied": True,
            "provisioningState": instance.state,
            "vmId": instance.vm_id,
            "hardwareProfile": {"vmSize": record.body["sku"]["name"]},
            "storageProfile": copy.deepcopy(profile.get("storageProfile") or {}),
            "osProfile": {**copy.deepcopy(system), "computerName": machine.name},
            "networkProfile": {
                "networkInterfaces": [{"id": str(rid.child("networkInterfaces", n["name"]))} for n in nics]
            },
        },
    }
    if alive is not None:
        shown["properties"]["instanceView"] = instance_view(instance, alive)
    return shown


def instance_view(instance: Instance, alive: frozenset[str]) -> dict[str, Any]:
    """State of one VM: provisioning, and whether it has power."""
    power = "running" if instance.machine.name in alive else "stopped"
    if instance.deallocated:
        power = "deallocated"
    state = instance.state.lower()
    return {
        "computerName": instance.machine.name,
        "statuses": [
            {
                "code": f"ProvisioningState/{state}",
                "level": "Error" if state == "failed" else "Info",
                "displayStatus": f"Provisioning {state}",
            },
            {"code": f"PowerState/{power}", "level": "Info", "displayStatus": f"VM {power}"},
        ],
    }


def scale_set_view(instances: list[Instance]) -> dict[str, Any]:
    """How many VMs of a scale set are in which state."""
    counts: dict[str, int] = {}
    for instance in instances:
        code = f"ProvisioningState/{instance.state.lower()}"
        counts[code] = counts.get(code, 0) + 1
    summary = [{"code": code, "count": count} for code, count in sorted(counts.items())]
    return {"virtualMachine": {"statusesSummary": summary}, "statuses": []}


def interface(record: Record, instance: Instance, nic: dict[str, Any]) -> dict[str, Any]:
    """One network interface of one VM."""
    vm = record.id.child("virtualMachines", str(instance.id))
    rid = vm.child("networkInterfaces", nic["name"])
    own = nic.get("properties") or {}
    found = []
    for number, configuration in enumerate(own.get("ipConfigurations") or ()):
        inner = configuration.get("properties") or {}
        pools = inner.get("loadBalancerBackendAddressPools") or []
        found.append(
            {
                "id": str(rid.child("ipConfigurations", configuration["name"])),
                "name": configuration["name"],
                "properties": {
                    "privateIPAddress": instance.machine.private_ip,
                    "privateIPAllocationMethod": "Dynamic",
                    "privateIPAddressVersion": "IPv4",
                    "primary": inner.get("primary", number == 0),
                    "provisioningState": instance.state,
                    "subnet": {"id": instance.subnet},
                    **({"loadBalancerBackendAddressPools": pools} if pools else {}),
                },
            }
        )
    return {
        "id": str(rid),
        "name": nic["name"],
        "properties": {
            "provisioningState": instance.state,
            "primary": own.get("primary", True),
            "enableAcceleratedNetworking": own.get("enableAcceleratedNetworking", False),
            "ipConfigurations": found,
            "virtualMachine": {"id": str(vm)},
        },
    }
