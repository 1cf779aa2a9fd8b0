"""Checks of every write, whatever the resource type: location, immutable properties, references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rehearsal.arm.core.errors import ArmError, dangling
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import place
from rehearsal.arm.core.references import at, references
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription

__all__ = [
    "lost_children",
    "refuse_dangling",
    "refuse_immutable",
    "refuse_in_use",
    "with_kept_lists",
    "with_location",
]

Body = dict[str, Any]


def with_location(rid: ResourceId, body: Body, old: Body | None) -> Body:
    """Return the body with its location as Azure compares it; refuse none, or another than before."""
    if not body.get("location"):
        raise ArmError(400, "LocationRequired", "The location property is required for this definition.")
    if old is not None and place(old["location"]) != place(body["location"]):
        raise ArmError(
            409,
            "InvalidResourceLocation",
            f"The resource '{rid.name}' already exists in location '{place(old['location'])}' in resource "
            f"group '{rid.group}'. A resource with the same name cannot be created in location "
            f"'{body['location']}'. Please select a new resource name.",
        )
    return {**body, "location": place(body["location"])}


def with_kept_lists(kind: ResourceType, body: Body, old: Body) -> Body:
    """Return the body with the lists that the type keeps where the body leaves them out."""
    properties = body.get("properties") or {}
    kept = {n: (old.get("properties") or {}).get(n) or [] for n in kind.keeps if n not in properties}
    return {**body, "properties": {**properties, **kept}} if kept else body


def refuse_immutable(kind: ResourceType, body: Body, old: Body) -> None:
    """Refuse a change of a property that Azure never changes."""
    for path in kind.immutable:
        before, after = _at(old, path), _at(body, path)
        if before is not None and after is not None and before != after:
            raise kind.immutable_error(path)


def _at(body: Body, path: str) -> Any:
    first, *rest = path.split(".")
    return at(body.get(first, at(body, "properties", first)), *rest)


def lost_children(rid: ResourceId, kind: ResourceType, body: Body, old: Body) -> Iterator[ResourceId]:
    """Yield the embedded children of the old body that the new one lacks."""
    for collection in kind.children:
        kept = {e.get("name", "").lower() for e in (body.get("properties") or {}).get(collection) or ()}
        for element in (old.get("properties") or {}).get(collection) or ():
            if element.get("name", "").lower() not in kept:
                yield rid.child(collection, element["name"])


def refuse_dangling(subscription: Subscription, rid: ResourceId, kind: ResourceType, body: Body) -> None:
    """Refuse a reference to a resource that does not exist."""
    own = {
        rid.child(collection, element.get("name", "")).key
        for collection in kind.children
        for element in (body.get("properties") or {}).get(collection) or ()
    }
    for holder, target in references(rid, body, kind.children, kind.loose):
        inside = target.key.startswith(f"{rid.key}/")
        known = subscription.types.find(target.type) is not None
        if (inside and target.key not in own) or (known and not inside and not subscription.exists(target)):
            raise dangling(target, holder)


def refuse_in_use(subscription: Subscription, rid: ResourceId, kind: ResourceType) -> None:
    """Refuse the deletion of what holds resources of its own, or what another resource refers to."""
    inside = [r for r in subscription.inside(rid) if r.kind.before_parent and r.id.parent.key == rid.key]
    if inside:
        problem = f"Can not delete resource before nested resources are deleted: {inside[0].id}."
        raise ArmError(409, "CannotDeleteResource", problem)
    holder = next(subscription.holders(rid), None) if kind.in_use is not None else None
    if holder is not None and kind.in_use is not None:
        raise ArmError(400, kind.in_use.code, kind.in_use.message.format(rid=rid, holder=holder))
