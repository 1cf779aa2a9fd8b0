"""Views of VMs, of scale sets and outside them, and of their network interfaces."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from rehearsal.arm.core.records import Instance, Record

__all__ = ["instance_view", "interface", "scale_set_view", "virtual_machine"]


def virtual_machine(record: Record, instance: Instance, alive: frozenset[str] | None) -> dict[str, Any]:
    """Return one VM of a scale set; with ``alive`` (names of running VMs) its instance view is in it."""
    profile = record.properties["virtualMachineProfile"]
    rid = record.id.child("virtualMachines", str(instance.id))
    machine = instance.machine
    system = {k: v for k, v in profile["osProfile"].items() if k not in ("customData", "computerNamePrefix")}
    nics = (profile.get("networkProfile") or {}).get("networkInterfaceConfigurations") or ()
    storage = profile.get("storageProfile") or {}
    if instance.os_disk:
        storage = {**storage, "osDisk": instance.os_disk}
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
            "storageProfile": copy.deepcopy(storage),
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
    """Return the instance view of one VM: provisioning and power state."""
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
    """Return the instance view of a scale set: how many VMs are in which state."""
    counts = Counter(f"ProvisioningState/{instance.state.lower()}" for instance in instances)
    summary = [{"code": code, "count": count} for code, count in sorted(counts.items())]
    return {"virtualMachine": {"statusesSummary": summary}, "statuses": []}


def interface(record: Record, instance: Instance, nic: dict[str, Any]) -> dict[str, Any]:
    """Return one network interface of one VM."""
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
