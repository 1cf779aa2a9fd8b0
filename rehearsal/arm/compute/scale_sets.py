"""Uniform scale sets: VMs come and go with the capacity; their ids only grow."""

from __future__ import annotations

import base64
import binascii
import copy
from dataclasses import replace
from itertools import islice

from launch.nodeset import base36
from rehearsal.arm.compute import scale_set_vms
from rehearsal.arm.compute.physical_hosts import free_hosts
from rehearsal.arm.core.errors import ArmError, change_not_allowed, missing, subnet_full
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Instance, Record, ScaleSet
from rehearsal.arm.core.references import at, reference
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.network.nat_rules import configurations, range_too_small
from rehearsal.arm.network.virtual_networks import free_addresses
from rehearsal.arm.services import Services
from rehearsal.vms.api import Machine

__all__ = ["ENTRIES", "MAX_SINGLE_PLACEMENT_GROUP", "machine_of", "user_data"]

MAX_SINGLE_PLACEMENT_GROUP = 300
"""VMs in one placement group: 100 by default, 300 by support request (learn.microsoft.com sizes-hpc)."""
_MAX = 1000
_SCALE_SETS = ResourceType(
    "Microsoft.Compute/virtualMachineScaleSets",
    "compute.VirtualMachineScaleSet",
    ("vmScaleSetName",),
    patch_model="compute.VirtualMachineScaleSetUpdate",
    immutable=(
        "orchestrationMode",
        "extendedLocation",
        "virtualMachineProfile.priority",
        "virtualMachineProfile.osProfile.adminUsername",
        "virtualMachineProfile.osProfile.computerNamePrefix",
    ),
    merges=True,
    group_rank=6,
    guid_name="uniqueId",
)


class _ScaleSetHooks(Hooks[Services]):
    """A scale set has as many VMs as its capacity."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse what the compute provider refuses; properties that are left out stay."""
        sku = {**((old or {}).get("sku") or {}), **(body.get("sku") or {})}
        for name in ("name", "capacity"):
            if sku.get(name) is None:
                raise missing(f"sku.{name}")
        before, properties = (old or {}).get("properties") or {}, body["properties"]
        body = {**body, "sku": sku}
        _check_placement(sku["capacity"], properties, before)
        profile = properties.get("virtualMachineProfile") or {}
        if properties.get("orchestrationMode", "Uniform") != "Uniform":
            problem = "The emulation has scale sets of orchestrationMode Uniform only."
            raise ArmError(400, "InvalidParameter", problem, "orchestrationMode")
        if not properties.get("upgradePolicy"):
            raise missing("upgradePolicy")
        if not profile:
            raise missing("virtualMachineProfile")
        system_before = at(before, "virtualMachineProfile", "osProfile") or {}
        system = {**system_before, **(profile.get("osProfile") or {})}
        properties["virtualMachineProfile"] = {**profile, "osProfile": system}
        for name in ("computerNamePrefix", "adminUsername"):
            if not system.get(name):
                raise missing(f"virtualMachineProfile.osProfile.{name}")
        user_data(system)
        subnet = _subnet(Record(rid, _SCALE_SETS, body))
        scale_set = self.services.subscription.scale_sets.get(rid.key)
        more = sku["capacity"] - (len(scale_set.instances) if scale_set else 0)
        if more > len(list(islice(free_addresses(self.services.subscription, subnet), max(more, 0)))):
            raise subnet_full(subnet.name, more)
        self._check_ports(body, rid, sku["capacity"])
        spot = (properties["virtualMachineProfile"].get("priority") or "Regular") != "Regular"
        if more > 0:
            storage = properties["virtualMachineProfile"].get("storageProfile") or {}
            plan = body.get("plan") or (old or {}).get("plan")
            gib = (storage.get("osDisk") or {}).get("diskSizeGB")
            self.services.market.check_image(storage.get("imageReference") or {}, plan, gib)
        self.services.market.check(rid, sku["name"], body["location"], more, spot=spot, growth=True)
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        """Boot what is missing, end the newest of what is too many, and boot again what failed before."""
        subnet = _subnet(record)
        network = str(self.services.subscription.find(subnet).id)
        scale_set = self.services.subscription.scale_sets.setdefault(record.id.key, ScaleSet(network))
        surplus = len(scale_set.instances) - record.body["sku"]["capacity"]
        if surplus > 0:
            await scale_set_vms.end(self.services, record, sorted(scale_set.instances)[-surplus:])
        failed = [i for i in scale_set.instances.values() if i.state == "Failed"]
        if failed:
            await self.services.machines.remove(network, [i.machine.name for i in failed])
        free = islice(free_addresses(self.services.subscription, subnet), max(-surplus, 0))
        hosts = free_hosts(self.services.subscription)
        new = [
            _instance(record, scale_set, str(subnet), *one) for one in zip(list(free), hosts, strict=False)
        ]
        scale_set.instances.update({i.id: i for i in new})
        self.services.nat_rules.assign()
        wanted = [*failed, *new]
        come, error = self.services.market.scarcity.granted(len(wanted))
        for instance in wanted[come:]:  # whether Azure keeps them in its list is not known; here it does
            instance.state = "Failed"
        await scale_set_vms.boot(self.services, network, wanted[:come])
        await self.services.nat_rules.reconcile()
        if error is not None:
            raise error

    async def remove(self, record: Record) -> None:
        scale_set = self.services.subscription.scale_sets.get(record.id.key)
        if scale_set is not None:
            await scale_set_vms.end(self.services, record, sorted(scale_set.instances))
            self.services.subscription.scale_sets.pop(record.id.key, None)

    def show(self, record: Record, shown: Body) -> None:
        """Add the creation time; remove what Azure never shows."""
        shown["properties"]["timeCreated"] = record.created
        for secret in ("customData", "adminPassword"):
            shown["properties"]["virtualMachineProfile"]["osProfile"].pop(secret, None)

    def _check_ports(self, body: Body, rid: ResourceId, capacity: int) -> None:
        model = Record(rid, _SCALE_SETS, body)
        for _, configuration in configurations(model):
            for joined in configuration["properties"].get("loadBalancerBackendAddressPools") or ():
                pool = ResourceId.parse(joined["id"])
                for _, rule in self.services.nat_rules.rules(pool) if pool is not None else ():
                    low, high = (rule["properties"][f"frontendPortRange{end}"] for end in ("Start", "End"))
                    if high - low + 1 < capacity:
                        raise range_too_small(rule["name"], low, high)


def _check_placement(capacity: int, properties: Body, before: Body) -> None:
    if properties.get("singlePlacementGroup") and before.get("singlePlacementGroup") is False:
        raise change_not_allowed("singlePlacementGroup")
    limit = MAX_SINGLE_PLACEMENT_GROUP if properties.get("singlePlacementGroup", True) else _MAX
    if not 0 <= capacity <= limit:
        raise ArmError(
            400,
            "InvalidParameter",
            f"The value {capacity} of parameter sku.capacity is out of range: a scale set with "
            f"singlePlacementGroup {str(limit < _MAX).lower()} has 0 to {limit} virtual machines.",
            "sku.capacity",
        )


def _subnet(record: Record) -> ResourceId:
    for nic, configuration in configurations(record):
        primary = nic.get("properties", {}).get("primary", True)
        subnet = reference(configuration, "properties", "subnet")
        if primary and subnet is not None:
            return subnet
    raise missing("networkInterfaceConfigurations.ipConfigurations.subnet")


def user_data(system: Body) -> str:
    """Return the decoded ``customData`` of an ``osProfile``; refuse what is not base64."""
    try:
        return base64.b64decode(system.get("customData") or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ArmError(
            400,
            "InvalidParameter",
            "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 "
            "characters.",
            "customData",
        ) from None


def _instance(record: Record, scale_set: ScaleSet, subnet: str, address: str, host: str) -> Instance:
    system = record.properties["virtualMachineProfile"]["osProfile"]
    number, scale_set.next_id = scale_set.next_id, scale_set.next_id + 1
    name = system["computerNamePrefix"] + base36(number)
    machine = replace(machine_of(system, name, address, record.body["sku"]["name"]), host=host)
    disk = at(record.properties, "virtualMachineProfile", "storageProfile", "osDisk") or {}
    return Instance(number, machine, subnet, os_disk=copy.deepcopy(disk))


def machine_of(system: Body, name: str, address: str, size: str) -> Machine:
    """Return the VM of an ``osProfile``."""
    keys = at(system, "linuxConfiguration", "ssh", "publicKeys") or ()
    return Machine(
        name=name,
        private_ip=address,
        admin_user=system["adminUsername"],
        authorized_keys=tuple(k["keyData"] for k in keys if k.get("keyData")),
        user_data=user_data(system),
        size=size,
    )


ENTRIES = ((_SCALE_SETS, _ScaleSetHooks),)
