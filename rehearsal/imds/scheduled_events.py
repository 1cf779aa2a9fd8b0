"""Scheduled events: what Azure tells VMs before it takes them, and what they may say to it.

Shape and rules as learn.microsoft.com has them ("Scheduled Events for Linux VMs", "Terminate notification for
scale set instances", "Azure Spot Virtual Machines"). Every VM has an event of its own, so that each approves
only its own end. The service is on for a VM from its first question; Azure turns it off after a day without
one, the rehearsal after :data:`FORGOTTEN_S`: a deletion waits only for VMs on which somebody listens.
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
"""A watcher asks every second or so; a rehearsal cannot wait a day, as Azure does, to see that none does."""

_DURATIONS = {"Preempt": -1, "Terminate": -1, "Reboot": -1, "Redeploy": -1, "Freeze": 5}
"""``DurationInSeconds``; -1 is Azure's word for unknown."""


@dataclass(slots=True)
class Event:
    """What will befall one VM."""

    type: EventType
    resource: str
    not_before: float
    """Unix seconds."""
    description: str
    source: Literal["Platform", "User"]
    id: str = field(default_factory=lambda: str(uuid.uuid4()).upper())
    started: bool = False
    approved: asyncio.Event = field(default_factory=asyncio.Event)

    def body(self) -> dict[str, Any]:
        """As the document shows it; an event that has begun has no time any more."""
        return {
            "EventId": self.id,
            "EventType": self.type,
            "ResourceType": "VirtualMachine",
            "Resources": [self.resource],
            "EventStatus": "Started" if self.started else "Scheduled",
            "NotBefore": "" if self.started else formatdate(self.not_before, usegmt=True),
            "Description": self.description,
            "EventSource": self.source,
            "DurationInSeconds": _DURATIONS[self.type],
        }


class ScheduledEvents:
    """The documents of all scale sets; a ``scope`` is what shares one."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._events: dict[str, list[Event]] = {}
        self._incarnations: dict[str, int] = {}
        self._asked: dict[str, float] = {}

    def document(self, scope: str, vm_id: str) -> dict[str, Any]:
        """What a VM reads; from now on the service is on for it."""
        self._asked[vm_id] = self._clock()
        events = self._events.get(scope, [])
        return {
            "DocumentIncarnation": self._incarnations.get(scope, 1),
            "Events": [event.body() for event in events],
        }

    def listens(self, vm_id: str) -> bool:
        """Whether somebody on the VM has asked lately."""
        return self._clock() - self._asked.get(vm_id, float("-inf")) < FORGOTTEN_S

    def approve(self, scope: str, event_id: str) -> bool:
        """A VM says that an event may begin; False when there is no such event."""
        for event in self._events.get(scope, ()):
            if event.id.lower() == event_id.lower():
                self._begin(scope, event)
                return True
        return False

    def announce(
        self,
        scope: str,
        resources: Iterable[str],
        kind: EventType,
        seconds: float,
        description: str,
        source: Literal["Platform", "User"] = "Platform",
    ) -> list[Event]:
        """New events, one a VM, none to begin before ``seconds`` have passed unless it is approved."""
        due = self._clock() + seconds
        events = [Event(kind, name, due, description, source) for name in resources]
        self._events.setdefault(scope, []).extend(events)
        if events:
            self._change(scope)
        return events

    async def until_due(self, scope: str, events: Sequence[Event]) -> None:
        """Returns when each event was approved or its time has come; all have begun then."""
        left = max((event.not_before for event in events), default=0.0) - self._clock()
        waits = [event.approved.wait() for event in events]
        try:
            await asyncio.wait_for(asyncio.gather(*waits), max(left, 0.0))
        except TimeoutError:
            for event in events:
                self._begin(scope, event)

    def end(self, scope: str, events: Sequence[Event]) -> None:
        """What was announced has happened: the events leave the document."""
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
