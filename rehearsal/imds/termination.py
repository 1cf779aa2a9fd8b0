"""VMs that Azure takes: with a notice before a deletion that was asked for, or because it wants them back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rehearsal.arm.core.records import Instance, Record

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["EVICTION_NOTICE_S", "before_end", "eviction_notice", "notice_seconds"]

EVICTION_NOTICE_S = 30.0
"""What Azure gives at the least before it evicts a spot VM (learn.microsoft.com, Scheduled Events)."""

_MINUTES = re.compile(r"PT(?P<minutes>[0-9]{1,3})M")
_DEFAULT_MINUTES = 5


def notice_seconds(record: Record) -> float | None:
    """How long a deletion waits for the VMs of a scale set at most; None when they are not told of one.

    A spot VM gets no terminate notification (learn.microsoft.com, terminate notification).
    """
    profile = record.properties.get("virtualMachineProfile") or {}
    wanted = (profile.get("scheduledEventsProfile") or {}).get("terminateNotificationProfile") or {}
    if not wanted.get("enable") or profile.get("priority") in ("Spot", "Low"):
        return None
    match = _MINUTES.fullmatch(wanted.get("notBeforeTimeout") or "")
    return 60.0 * (int(match["minutes"]) if match else _DEFAULT_MINUTES)


async def before_end(subscription: Subscription, record: Record, instances: Sequence[Instance]) -> None:
    """Returns when the VMs may be deleted: each has said so, or its time is over, or nobody listens there."""
    seconds = notice_seconds(record)
    told = [instance for instance in instances if subscription.events.listens(instance.vm_id)]
    if seconds is None or not told:
        return
    alive = await subscription.machines.running(subscription.scale_sets[record.id.key].network)
    names = [f"{record.id.name}_{one.id}" for one in told if one.machine.name in alive]
    scope, events = record.id.key, subscription.events
    announced = events.announce(scope, names, "Terminate", seconds, "", "User")
    try:
        await events.until_due(scope, announced)
    finally:
        events.end(scope, announced)


async def eviction_notice(
    subscription: Subscription, record: Record, instances: Sequence[Instance], seconds: float
) -> None:
    """Tells VMs that they will be evicted, and returns when their time is over or each has agreed."""
    scope, events = record.id.key, subscription.events
    names = [f"{record.id.name}_{one.id}" for one in instances]
    announced = events.announce(scope, names, "Preempt", seconds, "")
    try:
        await events.until_due(scope, announced)
    finally:
        events.end(scope, announced)
