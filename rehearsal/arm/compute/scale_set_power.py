"""Power and disks of VMs of a scale set: start, stop, restart, reimage, and eviction on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rehearsal.arm.compute import scale_sets
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.records import Instance, Record, ScaleSet
from rehearsal.imds import termination

if TYPE_CHECKING:
    from rehearsal.arm.core.operations import Operation
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["ACTIONS", "chosen", "power", "simulate_eviction"]

ACTIONS = ("start", "restart", "poweroff", "deallocate", "redeploy", "reimage", "reimageall")
"""In lower letters; a redeployed VM is restarted, on what is the same hardware here."""
_STOPS = ("restart", "poweroff", "deallocate", "redeploy")
_BOOTS = ("start", "restart", "redeploy", "reimage", "reimageall")


def chosen(instances: Sequence[Instance], wanted: Sequence[object]) -> list[Instance]:
    """The instances of these ids, ``*`` for all; raises :class:`ArmError` for an id that is none."""
    if [str(w) for w in wanted] == ["*"]:
        return list(instances)
    known = {str(i.id): i for i in instances}
    missing = [str(w) for w in wanted if str(w) not in known]
    if missing:
        problem = f"The provided instanceId {missing[0]} is not an active Virtual Machine Scale Set VM "
        raise ArmError(400, "InvalidParameter", f"{problem}instanceId.", "instanceIds")
    return [known[str(w)] for w in wanted]


async def power(
    subscription: Subscription, scale_set: ScaleSet, instances: Sequence[Instance], action: str
) -> None:
    """Does ``action``, one of :data:`ACTIONS`, to VMs; their disks stay unless they are reimaged."""
    machines, network = subscription.machines, scale_set.network
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
        await scale_sets.boot(subscription, scale_set, list(instances))


def simulate_eviction(subscription: Subscription, record: Record, instance: Instance) -> Operation:
    """Begins to take a spot VM as Azure does, with a notice; raises :class:`ArmError` for any other VM."""
    profile = record.properties.get("virtualMachineProfile") or {}
    if str(profile.get("priority", "")).lower() != "spot":
        name = f"{record.id.name}_{instance.id}"
        problem = f"Operation 'simulateEviction' is not allowed on VM '{name}': it is no Spot VM."
        raise ArmError(409, "OperationNotAllowed", problem)
    work = scale_sets.evict(subscription, record, [instance.id], termination.EVICTION_NOTICE_S)
    return subscription.begin(record, "post", work, None)
