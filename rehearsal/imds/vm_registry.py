"""Registry of the VMs by their private address, with what the metadata service shows them.

This is the only view of that service into the emulated subscription. Nothing is copied: every request reads
the records as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.arm.auth.identities import client_id
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.subscription import Subscription
from rehearsal.imds.tokens import Identity
from rehearsal.vms.api import Machine

__all__ = ["RegisteredVm", "find_vm", "identities"]


@dataclass(frozen=True, slots=True)
class RegisteredVm:
    """One VM, as its metadata show it."""

    scope: str
    """Key of its scheduled events: its scale set's, or its own."""
    resource_id: ResourceId
    name: str
    """As in scheduled events: ``<set>_<id>``."""
    scale_set: str
    """Empty for a VM outside scale sets."""
    vm_id: str
    machine: Machine
    subnet: str
    location: str
    size: str
    profile: Mapping[str, Any]
    """``virtualMachineProfile`` or a VM's ``properties``: image, priority."""
    tags: Mapping[str, str]
    zones: tuple[str, ...]
    identity: Mapping[str, Any]
    """The resource's ``identity``."""


def find_vm(subscription: Subscription, network: str, address: str) -> RegisteredVm | None:
    """Return the VM with a private address in a network; None when no VM has it."""
    for key, scale_set in subscription.scale_sets.items():
        record = subscription.resources.get(key)
        for instance in scale_set.instances.values() if scale_set.network == network else ():
            if instance.machine.private_ip == address and record is not None:
                return _registered(
                    record,
                    instance,
                    resource_id=record.id.child("virtualMachines", str(instance.id)),
                    name=f"{record.id.name}_{instance.id}",
                    scale_set=record.id.name,
                    size=record.body["sku"]["name"],
                    profile=record.properties.get("virtualMachineProfile") or {},
                )
    for key, machine in subscription.virtual_machines.items():
        record, subnet = subscription.resources.get(key), ResourceId.parse(machine.subnet)
        is_there = subnet is not None and subnet.parent.key == network.lower()
        if is_there and machine.machine.private_ip == address and record is not None:
            return _registered(
                record,
                machine,
                resource_id=record.id,
                name=record.id.name,
                scale_set="",
                size=record.properties["hardwareProfile"]["vmSize"],
                profile=record.properties,
            )
    return None


def _registered(record: Record, instance: Instance, **own: Any) -> RegisteredVm:
    return RegisteredVm(
        scope=record.id.key,
        vm_id=instance.vm_id,
        machine=instance.machine,
        subnet=instance.subnet,
        location=record.body["location"],
        tags=record.body.get("tags") or {},
        zones=tuple(record.body.get("zones") or ()),
        identity=record.body.get("identity") or {},
        **own,
    )


def identities(subscription: Subscription, of: RegisteredVm) -> list[Identity]:
    """Return the user-assigned identities of the VM that still exist."""
    found = []
    for text in of.identity.get("userAssignedIdentities") or {}:
        rid = ResourceId.parse(text)
        if rid is not None and subscription.exists(rid):
            record = subscription.find(rid)
            found.append(Identity(str(record.id), record.guid, client_id(record)))
    return found
