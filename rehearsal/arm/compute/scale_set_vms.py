"""VMs of scale sets: boot, power, eviction, deletion."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from launch.errors import RankliftError
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.records import Instance, Record, ScaleSet
from rehearsal.arm.network.virtual_networks import outbound_subnets
from rehearsal.arm.services import Services
from rehearsal.imds import termination

__all__ = ["ACTIONS", "boot", "chosen", "delete_instances", "end", "evict", "power", "refuse_eviction"]

ACTIONS = ("start", "restart", "poweroff", "deallocate", "redeploy", "reimage", "reimageall")
"""Power actions in lower case; a redeployed VM is restarted: there is no other hardware here."""
_STOPS = ("restart", "poweroff", "deallocate", "redeploy")
_BOOTS = ("start", "restart", "redeploy", "reimage", "reimageall")


def chosen(instances: Sequence[Instance], wanted: Sequence[object]) -> list[Instance]:
    """Return the instances of these ids, ``*`` for all; refuse an id that does not exist."""
    if [str(w) for w in wanted] == ["*"]:
        return list(instances)
    known = {str(i.id): i for i in instances}
    missing = [str(w) for w in wanted if str(w) not in known]
    if missing:
        problem = f"The provided instanceId {missing[0]} is not an active Virtual Machine Scale Set VM "
        raise ArmError(400, "InvalidParameter", f"{problem}instanceId.", "instanceIds")
    return [known[str(w)] for w in wanted]


async def power(services: Services, scale_set: ScaleSet, instances: Sequence[Instance], action: str) -> None:
    """Run one of :data:`ACTIONS` on VMs; their disks stay unless they are reimaged."""
    machines, network = services.machines, scale_set.network
    names = [i.machine.name for i in instances]
    if action in _STOPS:
        alive = await machines.running(network)
        for name in names:
            if name in alive:
                await machines.fault(network, name, "death")
    elif action in ("reimage", "reimageall"):
        await machines.remove(network, names)
    for instance in instances:
        instance.deallocated = action == "deallocate"
    if action in _BOOTS:
        await boot(services, network, instances)


def refuse_eviction(record: Record, instance: Instance) -> None:
    """Refuse to simulate the eviction of a VM that is not a spot VM."""
    profile = record.properties.get("virtualMachineProfile") or {}
    if str(profile.get("priority", "")).lower() != "spot":
        name = f"{record.id.name}_{instance.id}"
        problem = f"Operation 'simulateEviction' is not allowed on VM '{name}': it is not a Spot VM."
        raise ArmError(409, "OperationNotAllowed", problem)


async def boot(services: Services, network: str, instances: Sequence[Instance]) -> None:
    """Boot VMs; refuse with :class:`ArmError` when one does not come up: its state is ``Failed`` then."""
    if not instances:
        return
    for instance in instances:
        instance.state = "Creating"
    try:
        # Whether the set is behind a load balancer was not known when the network was made.
        record = services.subscription.resources[network.lower()]
        await services.machines.set_outbound(network, outbound_subnets(services.subscription, record))
        await services.machines.boot(network, [i.machine for i in instances])
    except (RankliftError, OSError) as error:
        alive = await services.machines.running(network)
        culprit = getattr(error, "node", instances[0].machine.name)
        for instance in instances:
            name = instance.machine.name
            instance.state = "Succeeded" if name in alive and name != culprit else "Failed"
        raise ArmError(
            409,
            "OSProvisioningTimedOut",
            f"OS Provisioning for VM '{culprit}' did not finish in the allotted time. The VM may still "
            f"finish provisioning successfully. Please check provisioning state later. {error}",
        ) from error
    for instance in instances:
        instance.state = "Succeeded"


async def end(services: Services, record: Record, ids: list[int]) -> None:
    """End VMs after their terminate notification; the capacity stays."""
    scale_set = services.subscription.scale_sets[record.id.key]
    ending = [scale_set.instances[number] for number in ids]
    alive = await services.machines.running(scale_set.network)
    await termination.before_end(services.events, record, ending, alive)
    await _take(services, scale_set, ids)


async def evict(services: Services, record: Record, ids: list[int], seconds: float) -> None:
    """Evict VMs as Azure evicts spot VMs: a notice, then the VM is lost, whatever runs on it.

    As with ``evictionPolicy`` Delete: the VMs leave the scale set and its capacity shrinks with them.
    """
    scale_set = services.subscription.scale_sets[record.id.key]
    gone = [scale_set.instances[number] for number in ids if number in scale_set.instances]
    await termination.eviction_notice(services.events, record, gone, seconds)
    gone = [instance for instance in gone if scale_set.instances.get(instance.id) is instance]
    # A lost VM sends nothing to its peers; one that is shut down closes its connections.
    for instance in gone:
        await services.machines.fault(scale_set.network, instance.machine.name, "death")
    await _take(services, scale_set, [instance.id for instance in gone if instance.state != "Deleting"])
    _count(record, scale_set)


def _count(record: Record, scale_set: ScaleSet) -> None:
    record.body["sku"] = {**record.body["sku"], "capacity": len(scale_set.instances)}
    record.etag = str(uuid.uuid4())


async def _take(services: Services, scale_set: ScaleSet, ids: list[int]) -> None:
    ids = [number for number in ids if number in scale_set.instances]
    for number in ids:
        scale_set.instances[number].state = "Deleting"
    await services.nat_rules.reconcile()
    names = [scale_set.instances[number].machine.name for number in ids]
    await services.machines.remove(scale_set.network, names)
    for number in ids:
        scale_set.instances.pop(number, None)


async def delete_instances(services: Services, record: Record, ids: list[int]) -> None:
    """Delete VMs; the capacity shrinks with them."""
    scale_set = services.subscription.scale_sets[record.id.key]
    await end(services, record, [i for i in ids if i in scale_set.instances])
    _count(record, scale_set)
