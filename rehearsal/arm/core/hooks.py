"""What a resource type may do besides being kept: check, make real, take away, show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["Hooks"]

Body = dict[str, Any]


def _as_asked(_s: Subscription, _id: ResourceId, body: Body, _old: Body | None) -> Body:
    return body


async def _no_more(_s: Subscription, _r: Record, _old: Body | None = None) -> None:
    return


def _nothing_against(_s: Subscription, _id: ResourceId) -> None:
    return


def _as_kept(_s: Subscription, _r: Record, _shown: Body) -> None:
    return


@dataclass(frozen=True, slots=True)
class Hooks:
    """The extra behaviour of one resource type."""

    accept: Callable[[Subscription, ResourceId, Body, Body | None], Body] = _as_asked
    """The body that will hold, or an :class:`ArmError` before anything has changed."""
    apply: Callable[[Subscription, Record, Body | None], Awaitable[None]] = _no_more
    """Makes the accepted body real; the old body is None for a new resource."""
    release: Callable[[Subscription, ResourceId], None] = _nothing_against
    """Raises Azure's refusal to delete it now."""
    remove: Callable[[Subscription, Record], Awaitable[None]] = _no_more
    """Takes away what ``apply`` made."""
    show: Callable[[Subscription, Record, Body], None] = _as_kept
    """Adds to what a GET shows, in place."""
