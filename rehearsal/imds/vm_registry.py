"""Which VM has an address, and what the metadata service may tell it of itself.

The one place where that service looks into the emulated subscription: nothing is copied, every question is
answered from the records as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rehearsal.arm.core import views
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.subscription import Subscription
from rehearsal.imds.tokens import Identity
from rehearsal.vms.api import Machine

__all__ = ["Occupant", "identities", "occupant"]


@dataclass(frozen=True, slots=True)
class Occupant:
    """One VM that asks."""

    scope: str
    """What it shares its scheduled events with: its scale set, or itself."""
    resource_id: ResourceId
    name: str
    """As in scheduled events: ``<set>_<id>``."""
    scale_set: str
    """Empty for a VM that is in none."""
    vm_id: str
    machine: Machine
    subnet: str
    location: str
    size: str
    profile: Mapping[str, Any]
    """``virtualMachineProfile`` or a VM's ``properties``: image, priority."""
    tags: Mapping[str, str] = field(default_factory=dict)
    zones: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)
    """The resource's ``identity``."""


def occupant(subscription: Subscription, network: str, address: str) -> Occupant | None:
    """The VM that has the private address in a network; None when there is none."""
    for key, scale_set in subscription.scale_sets.items():
        if scale_set.network == network:
            for instance in scale_set.instances.values():
                record = subscription.resources.get(key)
                if instance.machine.private_ip == address and record is not None:
                    return _of_scale_set(record, instance)
    for key, machine in subscription.virtual_machines.items():
        record, subnet = subscription.resources.get(key), ResourceId.parse(machine.subnet)
        is_there = subnet is not None and subnet.parent.key == network.lower()
        if is_there and machine.machine.private_ip == address and record is not None:
            return _alone(record, machine)
    return None


def _of_scale_set(record: Record, instance: Instance) -> Occupant:
    return Occupant(
        scope=record.id.key,
        resource_id=record.id.child("virtualMachines", str(instance.id)),
        name=f"{record.id.name}_{instance.id}",
        scale_set=record.id.name,
        vm_id=instance.vm_id,
        machine=instance.machine,
        subnet=instance.subnet,
        location=record.body["location"],
        size=record.body["sku"]["name"],
        profile=record.properties.get("virtualMachineProfile") or {},
        tags=record.body.get("tags") or {},
        zones=tuple(record.body.get("zones") or ()),
        identity=record.body.get("identity") or {},
    )


def _alone(record: Record, instance: Instance) -> Occupant:
    return Occupant(
        scope=record.id.key,
        resource_id=record.id,
        name=record.id.name,
        scale_set="",
        vm_id=instance.vm_id,
        machine=instance.machine,
        subnet=instance.subnet,
        location=record.body["location"],
        size=record.properties["hardwareProfile"]["vmSize"],
        profile=record.properties,
        tags=record.body.get("tags") or {},
        zones=tuple(record.body.get("zones") or ()),
        identity=record.body.get("identity") or {},
    )


def identities(subscription: Subscription, of: Occupant) -> list[Identity]:
    """The user-assigned identities that the VM has; one that is gone is none."""
    found = []
    for text in of.identity.get("userAssignedIdentities") or {}:
        rid = ResourceId.parse(text)
        try:
            shown = views.resource(subscription, rid) if rid is not None else None
        except ArmError:
            shown = None
        if shown is not None:
            properties = shown.get("properties") or {}
            found.append(Identity(shown["id"], properties["principalId"], properties["clientId"]))
    return found
