"""Lists of resources: of a type, of a group, of a parent, by tag, and role assignments by scope."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from aiohttp import web

from rehearsal.arm.auth.identity_types import DEFINITIONS
from rehearsal.arm.auth.roles import BUILT_IN, built_in
from rehearsal.arm.core import views
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.registry import kind_of
from rehearsal.arm.core.subscription import Subscription

__all__ = ["children", "extensions", "filtered", "groups", "of_type", "resources"]

Test = Callable[[Record], bool]
_TAG = re.compile(r"tagname eq '(?P<name>[^']*)'(?: and tagvalue eq '(?P<value>[^']*)')?", re.IGNORECASE)
_TYPE = re.compile(r"resourcetype eq '(?P<type>[^']*)'", re.IGNORECASE)
_FIELD = re.compile(r"(?P<field>\w+) eq '(?P<value>[^']*)'", re.IGNORECASE)


def filtered(text: str) -> Test:
    """Which resources a ``$filter`` means: by tag, or by type; raises :class:`ArmError` for any other.

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


def groups(subscription: Subscription, request: web.Request) -> web.Response:
    """Every resource group that the filter means."""
    wanted = filtered(request.query.get("$filter", ""))
    return _page(views.resource(subscription, g.id) for g in subscription.groups.values() if wanted(g))


def resources(subscription: Subscription, request: web.Request, group: str = "") -> web.Response:
    """Everything with a location of its own, in all groups or in one, in the short form of such lists."""
    wanted = filtered(request.query.get("$filter", ""))
    found = [
        r
        for r in subscription.resources.values()
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


def of_type(subscription: Subscription, resource_type: str, group: str = "") -> web.Response:
    """Every resource of a type, in all groups or in one."""
    if kind_of(resource_type) is None:
        namespace, _, name = resource_type.partition("/")
        problem = f"The resource type '{name}' could not be found in the namespace '{namespace}'."
        raise ArmError(400, "InvalidResourceType", problem)
    return _page(
        views.resource(subscription, r.id)
        for r in list(subscription.resources.values())
        if r.kind.type.lower() == resource_type.lower() and (not group or r.id.group.lower() == group.lower())
    )


def children(subscription: Subscription, parent: ResourceId, collection: str) -> web.Response:
    """What lies in a resource."""
    kind = kind_of(f"{parent.type}/{collection}")
    record = subscription.find(parent)
    if kind is None:
        raise ArmError(400, "InvalidResourceType", f"The resource type '{collection}' could not be found.")
    if kind.singleton:
        return _page([views.resource(subscription, parent.child(kind.collection, "default"))])
    if kind.embedded:
        ids = [parent.child(kind.collection, e["name"]) for e in record.children(kind.collection)]
    else:
        ids = [r.id for r in subscription.of_type(kind.type) if r.id.parent.key == parent.key]
    return _page(views.resource(subscription, rid) for rid in ids)


def extensions(
    subscription: Subscription, scope: ResourceId, resource_type: str, request: web.Request
) -> web.Response:
    """Role assignments or definitions that matter at ``scope``: there, around it and, unless the filter
    says ``atScope()``, below it.
    """
    text = request.query.get("$filter", "")
    only_at = "atscope()" in text.lower()
    told = {m["field"].lower(): m["value"].lower() for m in _FIELD.finditer(text)}
    kind = kind_of(resource_type)
    assert kind is not None  # noqa: S101  (checked by the caller)
    found = [
        views.resource(subscription, r.id)
        for r in subscription.of_type(kind.type)
        if r.id.base.contains(scope) or (scope.contains(r.id.base) and not only_at)
    ]
    if kind.type == DEFINITIONS:
        found += [known for role in BUILT_IN if (known := built_in(subscription.id, role)) is not None]
    return _page(f for f in found if all(_value(f["properties"], n) == v for n, v in told.items()))


def _value(properties: dict[str, Any], name: str) -> str:
    return next((str(v).lower() for n, v in properties.items() if n.lower() == name), "")
