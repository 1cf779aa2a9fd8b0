"""What the emulated subscription is made of."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Operation
from rehearsal.arm.core.resource_type import Kind
from rehearsal.vms.api import Machine

__all__ = ["Instance", "Record", "ScaleSet", "now", "place"]


def now() -> str:
    """The time as Azure writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class Record:
    """One resource: ``body`` as it was asked for, checked; the rest is what Azure adds."""

    id: ResourceId
    kind: Kind
    body: dict[str, Any]
    state: str = "Creating"
    etag: str = ""
    guid: str = field(default_factory=lambda: str(uuid.uuid4()))
    operation: Operation | None = None
    address: str | None = None
    """A public IP's address, or the private one of an interface."""
    created: str = field(default_factory=now)
    owner: str = ""
    """The resource that made it along with itself."""
    status: dict[str, Any] = field(default_factory=dict)
    """What an image template says of its last run."""

    @property
    def busy(self) -> bool:
        """An operation on it has not ended."""
        return self.operation is not None and not self.operation.done.is_set()

    @property
    def properties(self) -> dict[str, Any]:
        """What stands under ``properties``."""
        return self.body.get("properties") or {}

    def children(self, collection: str) -> list[dict[str, Any]]:
        """One of the lists of child resources, empty when absent."""
        return self.properties.get(collection) or []


@dataclass(slots=True)
class Instance:
    """One VM of a scale set."""

    id: int
    machine: Machine
    subnet: str
    state: str = "Creating"
    deallocated: bool = False
    """Stopped, and without hardware."""
    vm_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(slots=True)
class ScaleSet:
    """The VMs of a scale set. Ids only grow: ``next_id`` outlives the VMs."""

    network: str
    next_id: int = 0
    instances: dict[int, Instance] = field(default_factory=dict)


def place(location: str) -> str:
    """A region's name as Azure compares it.

    >>> place("West Europe")
    'westeurope'
    """
    return location.replace(" ", "").lower()
