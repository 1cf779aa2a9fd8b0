"""Records of the emulated subscription: resources, and the VMs behind them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Operation
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.vms.api import Machine

__all__ = ["Instance", "Record", "ScaleSet", "now", "place"]


def now() -> str:
    """Return the time as Azure writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class Record:
    """One resource: ``body`` is the checked body of the last write, the rest what Azure adds."""

    id: ResourceId
    kind: ResourceType
    body: dict[str, Any]
    state: str = "Creating"
    etag: str = ""
    guid: str = field(default_factory=lambda: str(uuid.uuid4()))
    operation: Operation | None = None
    address: str | None = None
    """Address of a public IP, or private address of an interface."""
    created: str = field(default_factory=now)
    owner: str = ""
    """Id of the resource that created it, e.g. the private endpoint of an interface."""
    status: dict[str, Any] = field(default_factory=dict)
    """An image template's last run; a workspace's series."""

    @property
    def busy(self) -> bool:
        """Whether an operation on it has not ended."""
        return self.operation is not None and not self.operation.done.is_set()

    @property
    def properties(self) -> dict[str, Any]:
        """Content of ``properties``."""
        return self.body.get("properties") or {}

    def children(self, collection: str) -> list[dict[str, Any]]:
        """Return one of the lists of embedded children, empty when absent."""
        return self.properties.get(collection) or []


@dataclass(slots=True)
class Instance:
    """One VM of a scale set."""

    id: int
    machine: Machine
    subnet: str
    state: str = "Creating"
    deallocated: bool = False
    """Whether it is stopped and holds no hardware."""
    vm_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    os_disk: dict[str, Any] = field(default_factory=dict)
    """Its OS disk, as its scale set had it when the VM was made."""


@dataclass(slots=True)
class ScaleSet:
    """The VMs of a scale set. Ids only grow: ``next_id`` outlives the VMs."""

    network: str
    next_id: int = 0
    instances: dict[int, Instance] = field(default_factory=dict)


def place(location: str) -> str:
    """Return a region's name as Azure compares it.

    >>> place("West Europe")
    'westeurope'
    """
    return location.replace(" ", "").lower()
