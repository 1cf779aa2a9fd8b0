"""Behaviour of a resource type besides being stored: checks, side effects, view, actions."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record

__all__ = ["Body", "Hooks", "Work"]

Body = dict[str, Any]
"""Body of a resource, of a request or of an answer."""
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Work:
    """A long-running action: what to run, and whether it changes the resource meanwhile."""

    run: Coroutine[Any, Any, Any]
    is_change: bool = True


class Hooks(Generic[S]):
    """Behaviour of one resource type; a type overrides the methods in which it differs.

    ``services`` is whatever the emulation gives to all types at construction. Methods that refuse raise
    :class:`~rehearsal.arm.core.errors.ArmError`.
    """

    def __init__(self, services: S) -> None:
        self.services = services

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Return the body to store; refuse a wrong one before anything has changed."""
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        """Make the stored body real; ``old`` is None for a new resource."""

    def release(self, rid: ResourceId) -> None:
        """Refuse the deletion of a resource that cannot be deleted now."""

    async def remove(self, record: Record) -> None:
        """Take away what :meth:`apply` made."""

    def show(self, record: Record, shown: Body) -> None:
        """Add to the body of a GET, in place."""

    def show_child(self, rid: ResourceId, shown: Body, *, brief: bool) -> None:
        """Add to the body of an embedded child, in place; ``brief``: as it stands in its parent's body."""

    def act(self, rid: ResourceId, record: Record, action: str, body: Body) -> Work | Body | None:
        """Return the work or the answer of a POST of ``action``, in lower case; None when not emulated."""
        return None

    async def part(self, record: Record, name: str) -> Body | None:
        """Return the answer to a GET of a ``name``, in lower case, below it that is not a resource."""
        return None

    def built_in(self) -> Mapping[str, Body]:
        """Return the resources of the type that exist without being created, by name in lower case."""
        return {}
