"""Notices before VMs end: of a deletion that was requested, and of an eviction."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rehearsal.arm.core.records import Instance, Record
from rehearsal.arm.core.references import at
from rehearsal.imds.scheduled_events import EventType, ScheduledEvents

__all__ = ["EVICTION_NOTICE_S", "before_end", "eviction_notice", "notice_seconds"]

EVICTION_NOTICE_S = 30.0
"""Shortest notice that Azure gives before it evicts a spot VM (learn.microsoft.com, Scheduled Events)."""

_MINUTES = re.compile(r"PT(?P<minutes>[0-9]{1,3})M")
_DEFAULT_MINUTES = 5


def notice_seconds(record: Record) -> float | None:
    """Return the longest wait of a deletion for the VMs of a scale set; None without a notification.

    A spot VM gets no terminate notification (learn.microsoft.com, terminate notification).
    """
    profile = record.properties.get("virtualMachineProfile") or {}
    wanted = at(profile, "scheduledEventsProfile", "terminateNotificationProfile") or {}
    if not wanted.get("enable") or profile.get("priority") in ("Spot", "Low"):
        return None
    match = _MINUTES.fullmatch(wanted.get("notBeforeTimeout") or "")
    return 60.0 * (int(match["minutes"]) if match else _DEFAULT_MINUTES)


async def before_end(
    events: ScheduledEvents, record: Record, instances: Sequence[Instance], alive: Collection[str]
) -> None:
    """Return when the VMs may be deleted: each has approved, its time is over, or no program polls there.

    ``alive`` are the names of the VMs that run.
    """
    seconds = notice_seconds(record)
    if seconds is None:
        return
    polling = [one for one in instances if events.listens(one.vm_id) and one.machine.name in alive]
    if polling:
        await _announce(events, record, polling, "Terminate", seconds)


async def eviction_notice(
    events: ScheduledEvents, record: Record, instances: Sequence[Instance], seconds: float
) -> None:
    """Announce the eviction of VMs; return when their time is over or each has approved it."""
    await _announce(events, record, instances, "Preempt", seconds)


async def _announce(
    events: ScheduledEvents, record: Record, instances: Sequence[Instance], kind: EventType, seconds: float
) -> None:
    scope, names = record.id.key, [f"{record.id.name}_{one.id}" for one in instances]
    announced = events.announce(scope, names, kind, seconds)
    try:
        await events.until_due(scope, announced)
    finally:
        events.end(scope, announced)
