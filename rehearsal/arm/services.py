"""Services for the behaviour of resource types: state, VMs, ports, offer, events, blobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.nat_rules import NatRules
from rehearsal.arm.offers.market import Market
from rehearsal.arm.storage.blobs import Blobs
from rehearsal.imds.scheduled_events import ScheduledEvents
from rehearsal.imds.tokens import Tokens
from rehearsal.vms.api import Machines

__all__ = ["Services", "SharedState"]


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to every :class:`~rehearsal.arm.core.hooks.Hooks` at construction."""

    subscription: Subscription
    machines: Machines
    nat_rules: NatRules
    market: Market
    events: ScheduledEvents
    blobs: Blobs


@dataclass(frozen=True, slots=True)
class SharedState:
    """State that the endpoint shares with the metadata service of its VMs."""

    subscription: Subscription
    tokens: Tokens = field(default_factory=Tokens)
    events: ScheduledEvents = field(default_factory=ScheduledEvents)
