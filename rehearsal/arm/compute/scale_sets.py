"""Uniform scale sets: VMs come and go with the capacity; their ids only grow."""

from __future__ import annotations

import base64
import binascii
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Any

from launch.errors import RankliftError
from launch.nodeset import base36
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Scarcity
from rehearsal.arm.core.records import Instance, Record, ScaleSet
from rehearsal.arm.network.load_balancer import configurations, range_too_small
from rehearsal.arm.network.virtual_networks import free_addresses
from rehearsal.arm.offers import market
from rehearsal.imds import termination
from rehearsal.vms.api import Machine

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = [
    "HOOKS",
    "MAX_SINGLE_PLACEMENT_GROUP",
    "accept",
    "apply",
    "boot",
    "delete_instances",
    "evict",
    "remove",
    "user_data",
]

MAX_SINGLE_PLACEMENT_GROUP = 300
"""VMs in one placement group: 100 by default, 300 by support request (learn.microsoft.com sizes-hpc)."""
_MAX = 1000


def accept(
    subscription: Subscription, rid: ResourceId, body: dict[str, Any], old: dict[str, Any] | None
) -> dict[str, Any]:
    """The body that will hold: what is left out stays, as the compute provider has it."""
    sku = {**((old or {}).get("sku") or {}), **(body.get("sku") or {})}
    for name in ("name", "capacity"):
        if sku.get(name) is None:
            raise _missing(f"sku.{name}")
    before = (old or {}).get("properties") or {}
    properties = {**before, **(body.get("properties") or {})}
    body = {**body, "sku": sku, "properties": properties}
    _check_placement(sku["capacity"], properties, before)
    profile = properties.get("virtualMachineProfile") or {}
    if properties.get("orchestrationMode", "Uniform") != "Uniform":
        problem = "The emulation has scale sets of orchestrationMode Uniform only."
        raise ArmError(400, "InvalidParameter", problem, "orchestrationMode")
    if not properties.get("upgradePolicy"):
        raise _missing("upgradePolicy")
    if not profile:
        raise _missing("virtualMachineProfile")
    system_before = (before.get("virtualMachineProfile") or {}).get("osProfile") or {}
    system = {**system_before, **(profile.get("osProfile") or {})}
    properties["virtualMachineProfile"] = {**profile, "osProfile": system}
    for name in ("computerNamePrefix", "adminUsername"):
        if not system.get(name):
            raise _missing(f"virtualMachineProfile.osProfile.{name}")
    user_data(system)
    subnet = _subnet(Record(rid, subscription.group(rid).kind, body))
    scale_set = subscription.scale_sets.get(rid.key)
    more = sku["capacity"] - (len(scale_set.instances) if scale_set else 0)
    if more > len(list(islice(free_addresses(subscription, subnet), max(more, 0)))):
        raise ArmError(
            400,
            "SubnetIsFull",
            f"Subnet {subnet.name} does not have enough capacity for {more} IP addresses.",
        )
    _check_ports(subscription, body, rid, sku["capacity"])
    spot = (properties["virtualMachineProfile"].get("priority") or "Regular") != "Regular"
    if more > 0 and isinstance(subscription.faults, Scarcity):
        subscription.faults.refuse_growth(subscription, rid, sku["name"], body["location"], more)
    market.check(subscription, rid, sku["name"], body["location"], more, spot=spot)
    return body


def _check_placement(capacity: int, properties: dict[str, Any], before: dict[str, Any]) -> None:
    if properties.get("singlePlacementGroup") and before.get("singlePlacementGroup") is False:
        path = "singlePlacementGroup"
        raise ArmError(409, "PropertyChangeNotAllowed", f"Changing property '{path}' is not allowed.", path)
    limit = MAX_SINGLE_PLACEMENT_GROUP if properties.get("singlePlacementGroup", True) else _MAX
    if not 0 <= capacity <= limit:
        raise ArmError(
            400,
            "InvalidParameter",
            f"The value {capacity} of parameter sku.capacity is out of range: a scale set with "
            f"singlePlacementGroup {str(limit < _MAX).lower()} has 0 to {limit} virtual machines.",
            "sku.capacity",
        )


def _check_ports(subscription: Subscription, body: dict[str, Any], rid: ResourceId, capacity: int) -> None:
    model = Record(rid, subscription.group(rid).kind, body)
    for _, configuration in configurations(model):
        for reference in configuration["properties"].get("loadBalancerBackendAddressPools") or ():
            pool = ResourceId.parse(reference["id"])
            for _, rule in subscription.balancer.rules(pool) if pool is not None else ():
                low, high = (rule["properties"][f"frontendPortRange{end}"] for end in ("Start", "End"))
                if high - low + 1 < capacity:
                    raise range_too_small(rule["name"], low, high)


def _missing(parameter: str) -> ArmError:
    problem = f"Required parameter '{parameter}' is missing (null)."
    return ArmError(400, "InvalidParameter", problem, parameter)


def _subnet(record: Record) -> ResourceId:
    for nic, configuration in configurations(record):
        primary = nic.get("properties", {}).get("primary", True)
        subnet = ResourceId.parse((configuration["properties"].get("subnet") or {}).get("id", ""))
        if primary and subnet is not None:
            return subnet
    raise _missing("networkInterfaceConfigurations.ipConfigurations.subnet")


def user_data(system: dict[str, Any]) -> str:
    """The decoded ``customData`` of an ``osProfile``; raises :class:`ArmError` when it is not base64."""
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


async def apply(subscription: Subscription, record: Record, _old: dict[str, Any] | None = None) -> None:
    """Boots what lacks, ends the newest of what is too many, and tries again what failed before."""
    subnet = _subnet(record)
    network = str(subscription.find(subnet).id)
    scale_set = subscription.scale_sets.setdefault(record.id.key, ScaleSet(network))
    surplus = len(scale_set.instances) - record.body["sku"]["capacity"]
    if surplus > 0:
        await _end(subscription, record, sorted(scale_set.instances)[-surplus:])
    failed = [i for i in scale_set.instances.values() if i.state == "Failed"]
    if failed:
        await subscription.machines.remove(network, [i.machine.name for i in failed])
    new = [_instance(record, scale_set, str(subnet), a) for a in _addresses(subscription, subnet, -surplus)]
    scale_set.instances.update({i.id: i for i in new})
    subscription.balancer.assign()
    wanted = [*failed, *new]
    come, error = len(wanted), None
    if wanted and isinstance(subscription.faults, Scarcity):
        come, error = subscription.faults.granted(len(wanted))
    for instance in wanted[come:]:  # whether Azure keeps them in its list is not known; here it does
        instance.state = "Failed"
    await boot(subscription, scale_set, wanted[:come])
    await subscription.balancer.reconcile()
    if error is not None:
        raise error


def _addresses(subscription: Subscription, subnet: ResourceId, number: int) -> list[str]:
    return list(islice(free_addresses(subscription, subnet), max(number, 0)))


def _instance(record: Record, scale_set: ScaleSet, subnet: str, address: str) -> Instance:
    system = record.properties["virtualMachineProfile"]["osProfile"]
    keys = ((system.get("linuxConfiguration") or {}).get("ssh") or {}).get("publicKeys") or ()
    number, scale_set.next_id = scale_set.next_id, scale_set.next_id + 1
    machine = Machine(
        name=system["computerNamePrefix"] + base36(number),
        private_ip=address,
        admin_user=system["adminUsername"],
        authorized_keys=tuple(k["keyData"] for k in keys if k.get("keyData")),
        user_data=user_data(system),
    )
    return Instance(number, machine, subnet)


async def boot(subscription: Subscription, scale_set: ScaleSet, instances: list[Instance]) -> None:
    """Boots VMs; raises :class:`ArmError` when one does not come up, which is in state ``Failed`` then."""
    if not instances:
        return
    for instance in instances:
        instance.state = "Creating"
    try:
        await subscription.machines.boot(scale_set.network, [i.machine for i in instances])
    except (RankliftError, OSError) as error:
        alive = await subscription.machines.running(scale_set.network)
        for instance in instances:
            instance.state = "Succeeded" if instance.machine.name in alive else "Failed"
        culprit = getattr(error, "node", instances[0].machine.name)
        for instance in instances:
            if instance.machine.name == culprit:
                instance.state = "Failed"
        raise ArmError(
            409,
            "OSProvisioningTimedOut",
            f"OS Provisioning for VM '{culprit}' did not finish in the allotted time. The VM may still "
            f"finish provisioning successfully. Please check provisioning state later. {error}",
        ) from error
    for instance in instances:
        instance.state = "Succeeded"


async def _end(subscription: Subscription, record: Record, ids: list[int]) -> None:
    scale_set = subscription.scale_sets[record.id.key]
    await termination.before_end(subscription, record, [scale_set.instances[number] for number in ids])
    await _take(subscription, scale_set, ids)


async def evict(subscription: Subscription, record: Record, ids: list[int], seconds: float) -> None:
    """Takes VMs as Azure takes spot VMs back: a notice, then they are gone, whatever runs on them.

    As with ``evictionPolicy`` Delete: the VMs leave the scale set and its capacity shrinks with them.
    """
    scale_set = subscription.scale_sets[record.id.key]
    gone = [scale_set.instances[number] for number in ids if number in scale_set.instances]
    await termination.eviction_notice(subscription, record, gone, seconds)
    gone = [instance for instance in gone if scale_set.instances.get(instance.id) is instance]
    for instance in gone:  # peers of a lost VM hear nothing, where one that is shut down says goodbye
        await subscription.machines.fault(scale_set.network, instance.machine.name, "death")
    await _take(subscription, scale_set, [instance.id for instance in gone if instance.state != "Deleting"])
    _count(record, scale_set)


def _count(record: Record, scale_set: ScaleSet) -> None:
    record.body["sku"] = {**record.body["sku"], "capacity": len(scale_set.instances)}
    record.etag = str(uuid.uuid4())


async def _take(subscription: Subscription, scale_set: ScaleSet, ids: list[int]) -> None:
    ids = [number for number in ids if number in scale_set.instances]
    for number in ids:
        scale_set.instances[number].state = "Deleting"
    await subscription.balancer.reconcile()
    names = [scale_set.instances[number].machine.name for number in ids]
    await subscription.machines.remove(scale_set.network, names)
    for number in ids:
        scale_set.instances.pop(number, None)


async def delete_instances(subscription: Subscription, record: Record, ids: list[int]) -> None:
    """Ends certain VMs; the capacity shrinks with them."""
    scale_set = subscription.scale_sets[record.id.key]
    await _end(subscription, record, [i for i in ids if i in scale_set.instances])
    _count(record, scale_set)


async def remove(subscription: Subscription, record: Record) -> None:
    """Ends every VM."""
    scale_set = subscription.scale_sets.get(record.id.key)
    if scale_set is not None:
        await _end(subscription, record, sorted(scale_set.instances))
        subscription.scale_sets.pop(record.id.key, None)


def _show(_: Subscription, record: Record, shown: dict[str, Any]) -> None:
    shown["properties"]["timeCreated"] = record.created


HOOKS = {
    "Microsoft.Compute/virtualMachineScaleSets": Hooks(accept=accept, apply=apply, remove=remove, show=_show)
}
