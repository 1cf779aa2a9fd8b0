"""References between resources: the resource ids inside bodies."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from rehearsal.arm.core.ids import ResourceId

__all__ = ["at", "reference", "references"]


_REFERENCES = ("id", "privateLinkServiceId", "privateDnsZoneId", "galleryImageId")


def at(body: Any, *names: str) -> Any:
    """Return what is at a path of a body; None where a part of the path is absent.

    >>> at({"subnet": {"id": "s"}}, "subnet", "id"), at({"subnet": None}, "subnet", "id")
    ('s', None)
    """
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def reference(body: Any, *names: str) -> ResourceId | None:
    """Return the resource that a body refers to at a path."""
    return ResourceId.parse(at(body, *names, "id") or "")


def references(
    owner: ResourceId, body: dict[str, Any], children: Collection[str], loose: Collection[str] = ()
) -> Iterator[tuple[ResourceId, ResourceId]]:
    """Yield each resource id in ``body``, after the id of its holder: ``owner``, or a child of it.

    Properties named in ``loose`` are left out.

    >>> lb = ResourceId("s", "g", "N", ("loadBalancers", "lb"))
    >>> ip = "/subscriptions/s/resourceGroups/g/providers/N/publicIPAddresses/ip"
    >>> body = {"properties": {"frontends": [{"name": "f", "properties": {"publicIPAddress": {"id": ip}}}]}}
    >>> [(holder.name, target.name) for holder, target in references(lb, body, ["frontends"])]
    [('f', 'ip')]
    """
    for name, value in (body.get("properties") or {}).items():
        if name in loose:
            continue
        if name in children and isinstance(value, list):
            for element in value:
                holder = owner.child(name, element.get("name", ""))
                yield from ((holder, target) for target in _ids(element.get("properties")))
        else:
            yield from ((owner, target) for target in _ids(value))


def _ids(value: Any) -> Iterator[ResourceId]:
    if isinstance(value, dict):
        for name, inner in value.items():
            target = ResourceId.parse(inner) if name in _REFERENCES and isinstance(inner, str) else None
            if target is not None and target.parts:
                yield target
            else:
                yield from _ids(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ids(inner)
