"""Lists of resources: of a type, of a group, of a parent, by tag, and role assignments by scope."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from aiohttp import web

from rehearsal.arm.core.errors import ArmError, unknown_type
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_manager import ResourceManager
from rehearsal.arm.core.resource_type import ResourceType

__all__ = ["children", "extensions", "filtered", "groups", "of_type", "resources"]

Test = Callable[[Record], bool]
_TAG = re.compile(r"tagname eq '(?P<name>[^']*)'(?: and tagvalue eq '(?P<value>[^']*)')?", re.IGNORECASE)
_TYPE = re.compile(r"resourcetype eq '(?P<type>[^']*)'", re.IGNORECASE)
_FIELD = re.compile(r"(?P<field>\w+) eq '(?P<value>[^']*)'", re.IGNORECASE)


def filtered(text: str) -> Test:
    """Return the test of a ``$filter``, by tag or by type; refuse any other filter.

    The two forms that learn.microsoft.com resources/list gives for tags, and the one for types.
    """
    if not text:
        return lambda _: True
    if match := _TAG.fullmatch(text.strip()):
        name, value = match["name"].lower(), match["value"]

        def tagged(record: Record) -> bool:
            # Azure compares the names of tags without case, their values with it.
            tags = {k.lower(): v for k, v in (record.body.get("tags") or {}).items()}
            return name in tags and value in (None, tags[name])

        return tagged
    if match := _TYPE.fullmatch(text.strip()):
        wanted = match["type"].lower()
        return lambda record: record.kind.type.lower() == wanted
    raise ArmError(
        400, "InvalidFilterInQueryString", f"Invalid $filter '{text}' specified in the query string."
    )


def _page(values: Iterable[Any]) -> web.Response:
    return web.json_response({"value": list(values)})


def groups(manager: ResourceManager, request: web.Request) -> web.Response:
    """Return every resource group that passes the filter."""
    wanted = filtered(request.query.get("$filter", ""))
    return _page(manager.view(g.id) for g in manager.subscription.groups.values() if wanted(g))


def resources(manager: ResourceManager, request: web.Request, group: str = "") -> web.Response:
    """Return the tracked resources, in all groups or in one, in the short form of such lists."""
    wanted = filtered(request.query.get("$filter", ""))
    found = [
        r
        for r in manager.subscription.resources.values()
        if r.kind.tracked and wanted(r) and (not group or r.id.group.lower() == group.lower())
    ]
    expanded = [name.strip() for name in request.query.get("$expand", "").split(",")]
    return _page(_brief(r, expanded) for r in found)


def _brief(record: Record, expanded: Collection[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": str(record.id), "name": record.id.name, "type": record.kind.type}
    more: dict[str, Any] = {
        n: record.body[n] for n in ("location", "tags", "sku", "kind", "zones") if n in record.body
    }
    asked = {"createdTime": record.created, "provisioningState": record.state}
    return {**shown, **more, **{n: v for n, v in asked.items() if n in expanded}}


def of_type(manager: ResourceManager, resource_type: str, group: str = "") -> web.Response:
    """Return every resource of a type, in all groups or in one."""
    if manager.subscription.types.find(resource_type) is None:
        namespace, _, name = resource_type.partition("/")
        raise unknown_type(name, namespace)
    return _page(
        manager.view(r.id)
        for r in list(manager.subscription.resources.values())
        if r.kind.type.lower() == resource_type.lower() and (not group or r.id.group.lower() == group.lower())
    )


def children(manager: ResourceManager, parent: ResourceId, collection: str) -> web.Response:
    """Return the children of a resource."""
    kind = manager.subscription.types.find(f"{parent.type}/{collection}")
    record = manager.subscription.find(parent)
    if kind is None:
        raise unknown_type(f"{parent.type.partition('/')[2]}/{collection}", parent.namespace)
    if kind.singleton:
        return _page([manager.view(parent.child(kind.collection, "default"))])
    if kind.embedded:
        ids = [parent.child(kind.collection, e["name"]) for e in record.children(kind.collection)]
    else:
        ids = [r.id for r in manager.subscription.of_type(kind.type) if r.id.parent.key == parent.key]
    return _page(manager.view(rid) for rid in ids)


def extensions(
    manager: ResourceManager, scope: ResourceId, kind: ResourceType, request: web.Request
) -> web.Response:
    """Return the role assignments or definitions at ``scope``, around it and below it.

    Those below are left out when the filter is ``atScope()``.
    """
    text = request.query.get("$filter", "")
    only_at = "atscope()" in text.lower()
    given = {m["field"].lower(): m["value"].lower() for m in _FIELD.finditer(text)}
    found = [
        manager.view(r.id)
        for r in manager.subscription.of_type(kind.type)
        if r.id.base.contains(scope) or (scope.contains(r.id.base) and not only_at)
    ]
    found += manager.hooks(kind).built_in().values()
    lowered = [{n.lower(): str(v).lower() for n, v in f["properties"].items()} for f in found]
    return _page(f for f, own in zip(found, lowered, strict=True) if given.items() <= own.items())
