"""Scheduled Events: Azure's notices to VMs before they end, and the VMs' approvals.

Shape and rules as learn.microsoft.com has them ("Scheduled Events for Linux VMs", "Terminate notification for
scale set instances", "Azure Spot Virtual Machines"). Every VM has an event of its own, so that each approves
only its own end. The service is on for a VM from its first request; Azure turns it off after a day without
one, the rehearsal after :data:`FORGOTTEN_S`: a deletion waits only for VMs that poll.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Literal

__all__ = ["FORGOTTEN_S", "Event", "EventType", "ScheduledEvents"]

EventType = Literal["Preempt", "Terminate", "Reboot", "Redeploy", "Freeze"]

FORGOTTEN_S = 15.0
"""Seconds without a request after which the service is off for a VM; a watcher polls about every second."""

_DURATIONS = {"Preempt": -1, "Terminate": -1, "Reboot": -1, "Redeploy": -1, "Freeze": 5}
"""``DurationInSeconds``; -1 means unknown."""


@dataclass(slots=True)
class Event:
    """Event of one VM."""

    type: EventType
    resource: str
    not_before: float
    """Unix seconds."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()).upper())
    started: bool = False
    approved: asyncio.Event = field(default_factory=asyncio.Event)

    def body(self) -> dict[str, Any]:
        """Return the event as the document shows it; one that has started has no time any more."""
        return {
            "EventId": self.id,
            "EventType": self.type,
            "ResourceType": "VirtualMachine",
            "Resources": [self.resource],
            "EventStatus": "Started" if self.started else "Scheduled",
            "NotBefore": "" if self.started else formatdate(self.not_before, usegmt=True),
            "Description": "",
            "EventSource": "User" if self.type == "Terminate" else "Platform",
            "DurationInSeconds": _DURATIONS[self.type],
        }


class ScheduledEvents:
    """Documents of all scopes: a scale set, or a VM outside scale sets."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._events: dict[str, list[Event]] = {}
        self._incarnations: dict[str, int] = {}
        self._asked: dict[str, float] = {}

    def document(self, scope: str, vm_id: str) -> dict[str, Any]:
        """Return the document for a VM, and turn the service on for it."""
        self._asked[vm_id] = self._clock()
        events = self._events.get(scope, [])
        return {
            "DocumentIncarnation": self._incarnations.get(scope, 1),
            "Events": [event.body() for event in events],
        }

    def listens(self, vm_id: str) -> bool:
        """Whether the VM has polled within :data:`FORGOTTEN_S`."""
        return self._clock() - self._asked.get(vm_id, float("-inf")) < FORGOTTEN_S

    def approve(self, scope: str, event_id: str) -> bool:
        """Start an event that a VM approved; False when there is no such event."""
        for event in self._events.get(scope, ()):
            if event.id.lower() == event_id.lower():
                self._begin(scope, event)
                return True
        return False

    def announce(self, scope: str, resources: Iterable[str], kind: EventType, seconds: float) -> list[Event]:
        """Add an event for each VM, which starts after ``seconds`` unless it is approved before."""
        due = self._clock() + seconds
        events = [Event(kind, name, due) for name in resources]
        self._events.setdefault(scope, []).extend(events)
        if events:
            self._change(scope)
        return events

    async def until_due(self, scope: str, events: Sequence[Event]) -> None:
        """Return when each event was approved or its time has come; all have started then."""
        left = max((event.not_before for event in events), default=0.0) - self._clock()
        waits = [event.approved.wait() for event in events]
        try:
            await asyncio.wait_for(asyncio.gather(*waits), max(left, 0.0))
        except TimeoutError:
            for event in events:
                self._begin(scope, event)

    def end(self, scope: str, events: Sequence[Event]) -> None:
        """Remove the events from the document."""
        self._events[scope] = [event for event in self._events.get(scope, ()) if event not in events]
        if events:
            self._change(scope)

    def _begin(self, scope: str, event: Event) -> None:
        event.approved.set()
        if not event.started:
            event.started = True
            self._change(scope)

    def _change(self, scope: str) -> None:
        self._incarnations[scope] = self._incarnations.get(scope, 1) + 1
