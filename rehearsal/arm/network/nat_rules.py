"""Inbound NAT rules of version 2: the frontend port of each VM, and the forwards that make it real."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.references import at, reference
from rehearsal.arm.core.subscription import Subscription
from rehearsal.vms.api import Machines

__all__ = ["LOAD_BALANCERS", "Member", "NatRules", "configurations", "range_too_small"]

LOAD_BALANCERS = "Microsoft.Network/loadBalancers"


@dataclass(frozen=True, slots=True)
class Member:
    """One VM in a backend pool."""

    scale_set: Record
    instance: Instance
    nic: str
    configuration: str

    @property
    def nic_id(self) -> ResourceId:
        """Id of its network interface."""
        vm = self.scale_set.id.child("virtualMachines", str(self.instance.id))
        return vm.child("networkInterfaces", self.nic)

    @property
    def configuration_id(self) -> ResourceId:
        """Id of the interface's IP configuration that is in the pool."""
        return self.nic_id.child("ipConfigurations", self.configuration)


def configurations(scale_set: Record) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each network interface of the scale set's model with each of its IP configurations."""
    path = ("virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations")
    for nic in at(scale_set.properties, *path) or ():
        for configuration in nic.get("properties", {}).get("ipConfigurations") or ():
            yield nic, {**configuration, "properties": configuration.get("properties") or {}}


class NatRules:
    """Frontend ports of a subscription's VMs, and the forwards of this machine that serve them."""

    def __init__(self, subscription: Subscription, machines: Machines) -> None:
        self._subscription, self._machines = subscription, machines
        self._ports: dict[tuple[str, str, int], int] = {}
        self._forwards: dict[tuple[str, tuple[str, int]], tuple[str, int]] = {}
        self._lock = asyncio.Lock()

    def members(self, pool: ResourceId) -> list[Member]:
        """Return the VMs in a backend pool, ordered by scale set and instance id."""
        found = []
        for key, scale_set in self._subscription.scale_sets.items():
            record = self._subscription.resources.get(key)
            for nic, configuration in configurations(record) if record is not None else ():
                joined = configuration["properties"].get("loadBalancerBackendAddressPools") or ()
                if record is not None and any(one["id"].lower() == pool.key for one in joined):
                    instances = (i for i in scale_set.instances.values() if i.state != "Deleting")
                    found += [Member(record, i, nic["name"], configuration["name"]) for i in instances]
        return sorted(found, key=lambda m: (m.scale_set.id.key, m.instance.id))

    def rules(self, pool: ResourceId) -> Iterator[tuple[Record, dict[str, Any]]]:
        """Return the version 2 rules whose backend is ``pool``, with their load balancers."""
        return ((balancer, rule) for balancer, rule, own in self._all_rules() if own.key == pool.key)

    def _all_rules(self) -> Iterator[tuple[Record, dict[str, Any], ResourceId]]:
        """Yield the version 2 rules with their load balancers and pools."""
        for balancer in self._subscription.of_type(LOAD_BALANCERS):
            for rule in balancer.children("inboundNatRules") if balancer.state != "Deleting" else ():
                pool = reference(rule, "properties", "backendAddressPool")
                if pool is not None:
                    yield balancer, rule, pool

    def mapping(self, member: Member, pool: ResourceId) -> list[dict[str, Any]]:
        """Return the ports that lead to one VM: rule, protocol, frontend and backend port."""
        shown = []
        for balancer, rule in self.rules(pool):
            port = self._ports.get(_slot(balancer, rule, member))
            if port is not None:
                shown.append(
                    {
                        "inboundNatRuleName": rule["name"],
                        "protocol": rule["properties"].get("protocol", "Tcp"),
                        "frontendPort": port,
                        "backendPort": rule["properties"]["backendPort"],
                    }
                )
        return shown

    def assign(self) -> None:
        """Assign each VM in a pool its port of each rule, and free the ports of VMs that left.

        Raises :class:`ArmError` when a rule's range is too small.
        """
        wanted = list(self._wanted())
        slots = {_slot(balancer, rule, member) for balancer, rule, member in wanted}
        self._ports = {slot: port for slot, port in self._ports.items() if slot in slots}
        for balancer, rule, member in wanted:
            slot = _slot(balancer, rule, member)
            low, high = (rule["properties"][f"frontendPortRange{end}"] for end in ("Start", "End"))
            if not low <= self._ports.get(slot, -1) <= high:
                taken = {port for (key, _, _), port in self._ports.items() if key == slot[0]}
                free = next((p for p in range(low, high + 1) if p not in taken), None)
                if free is None:
                    raise range_too_small(rule["name"], low, high)
                self._ports[slot] = free

    async def reconcile(self) -> None:
        """Make the forwards match the rules and pools."""
        async with self._lock:
            self.assign()
            wanted = {}
            for balancer, rule, member in self._wanted():
                address = self._address(balancer, rule)
                scale_set = self._subscription.scale_sets[member.scale_set.id.key]
                if address is not None:
                    listen = (address, self._ports[_slot(balancer, rule, member)])
                    target = (member.instance.machine.private_ip, rule["properties"]["backendPort"])
                    wanted[scale_set.network, listen] = target
            for key, target in list(self._forwards.items()):
                if wanted.get(key) != target:
                    await self._machines.unforward(*key)
                    del self._forwards[key]
            for key, target in wanted.items():
                if key not in self._forwards:
                    await self._machines.forward(*key, target)
                    self._forwards[key] = target

    def _wanted(self) -> Iterator[tuple[Record, dict[str, Any], Member]]:
        for balancer, rule, pool in self._all_rules():
            for member in self.members(pool):
                yield balancer, rule, member

    def _address(self, balancer: Record, rule: dict[str, Any]) -> str | None:
        target = (at(rule, "properties", "frontendIPConfiguration", "id") or "").lower()
        for frontend in balancer.children("frontendIPConfigurations"):
            if balancer.id.child("frontendIPConfigurations", frontend["name"]).key == target:
                public = at(frontend, "properties", "publicIPAddress", "id") or ""
                record = self._subscription.resources.get(public.lower())
                return record.address if record is not None else None
        return None


def _slot(balancer: Record, rule: dict[str, Any], member: Member) -> tuple[str, str, int]:
    key = balancer.id.child("inboundNatRules", rule["name"]).key
    return key, member.scale_set.id.key, member.instance.id


def range_too_small(rule: str, low: int, high: int) -> ArmError:
    """Return the refusal of a rule with fewer ports than its pool has VMs."""
    return ArmError(
        400,
        "InboundNatRuleFrontendPortRangeTooSmall",
        f"The frontend port range {low}-{high} of inbound NAT rule '{rule}' has fewer ports than its backend "
        "address pool has members.",
    )
