"""The HTTP face of the emulated Azure Resource Manager."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from infra.rehearsal import callers
from infra.rehearsal.arm import scale_set_api, views
from infra.rehearsal.arm.errors import ArmError
from infra.rehearsal.arm.ids import ResourceId
from infra.rehearsal.arm.kinds import GROUP, KINDS, kind_of
from infra.rehearsal.arm.models import check, model
from infra.rehearsal.arm.operations import Faults, Operation
from infra.rehearsal.arm.subscription import Subscription
from infra.rehearsal.machines import Machines

__all__ = ["SUBSCRIPTION", "make_app"]

SUBSCRIPTION = web.AppKey("subscription", Subscription)
_API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-\w+)?")
# Azure's clients wait 30 s between questions unless told otherwise, and take `Retry-After: 0` for silence.
_ASK_AGAIN = {"x-ms-retry-after-ms": "50"}
_MIN_PARTS = 2


def make_app(machines: Machines, subscription_id: str, faults: Faults | None = None) -> web.Application:
    """The endpoint over an empty subscription; its state is ``app[SUBSCRIPTION]``."""
    app = web.Application(middlewares=[_answers, _own_user_only])
    app[SUBSCRIPTION] = Subscription(subscription_id, machines, faults)
    app.router.add_route("*", "/{tail:.*}", _dispatch)
    app.cleanup_ctx.append(_warm)
    app.on_cleanup.append(_close)
    return app


async def _warm(_: web.Application) -> AsyncIterator[None]:
    # Microsoft's models take seconds to import; the first request must not wait for them, nor the start.
    imported = asyncio.gather(*(asyncio.to_thread(lambda kind: kind.model, kind) for kind in KINDS.values()))
    yield
    await imported


async def _close(app: web.Application) -> None:
    await app[SUBSCRIPTION].close()


@web.middleware
async def _answers(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except ArmError as error:
        return web.json_response({"error": error.body()}, status=error.status)


@web.middleware
async def _own_user_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    ends = request.get_extra_info("peername"), request.get_extra_info("sockname")
    if not callers.is_trusted(*ends):
        problem = "This rehearsal belongs to another user of this machine."
        raise ArmError(403, "AuthorizationFailed", problem)
    return await handler(request)


async def _dispatch(request: web.Request) -> web.StreamResponse:
    _check_version(request)
    subscription = request.app[SUBSCRIPTION]
    parts = [p for p in request.path.split("/") if p]
    if len(parts) < _MIN_PARTS or parts[0].lower() != "subscriptions":
        raise ArmError(404, "NotFound", f"No such path: {request.path}")
    if parts[1].lower() != subscription.id.lower():
        problem = f"The subscription '{parts[1]}' could not be found."
        raise ArmError(404, "SubscriptionNotFound", problem)
    rest = parts[2:]
    lower = [p.lower() for p in rest]
    if not rest:
        return web.json_response(
            {"id": f"/subscriptions/{subscription.id}", "subscriptionId": subscription.id, "state": "Enabled"}
        )
    if "operations" in lower[-2:-1] or "operationresults" in lower[-2:-1]:
        return await _operation(request, subscription, rest[-1], lower[-2] == "operationresults")
    if lower == ["resourcegroups"]:
        groups = [views.resource(subscription, g.id) for g in subscription.groups.values()]
        return web.json_response({"value": groups})
    if lower[0] == "providers":
        return _list(subscription, "/".join(rest[1:]), "")
    if lower[0] != "resourcegroups":
        raise ArmError(404, "NotFound", f"No such path: {request.path}")
    if lower[2:] == ["resources"]:
        subscription.group(ResourceId(subscription.id, rest[1]))
        return _list(subscription, "", rest[1])
    return await _in_group(request, subscription, rest)


def _check_version(request: web.Request) -> None:
    version = request.query.get("api-version")
    if not version:
        raise ArmError(
            400,
            "MissingApiVersionParameter",
            "The api-version query parameter (?api-version=) is required for all requests.",
        )
    if not _API_VERSION.fullmatch(version):
        problem = f"The api-version '{version}' is invalid."
        raise ArmError(400, "InvalidApiVersionParameter", problem)


async def _in_group(request: web.Request, subscription: Subscription, rest: list[str]) -> web.StreamResponse:
    group = ResourceId(subscription.id, rest[1])
    if len(rest) == _MIN_PARTS:
        return await _resource(request, subscription, group)
    namespace, parts = rest[3], tuple(rest[4:])
    if rest[2].lower() != "providers" or not parts:
        raise ArmError(404, "NotFound", f"No such path: {request.path}")
    answer = await scale_set_api.answer(request, subscription, group, parts)
    if answer is not None:
        return answer.response() if answer.operation is None else _accepted(request, answer.operation)
    if len(parts) % 2:
        if len(parts) == 1:
            subscription.group(group)
            return _list(subscription, f"{namespace}/{parts[0]}", rest[1])
        parent = ResourceId(subscription.id, rest[1], namespace, parts[:-1])
        return _list_children(subscription, parent, parts[-1])
    rid = ResourceId(subscription.id, rest[1], namespace, parts)
    if not any(k.startswith(f"{namespace.lower()}/") for k in KINDS):
        raise ArmError(404, "InvalidResourceNamespace", f"The resource namespace '{namespace}' is invalid.")
    kind = kind_of(rid.type)
    if kind is None:
        problem = f"The resource type '{rid.type.partition('/')[2]}' could not be found in the namespace "
        raise ArmError(400, "InvalidResourceType", f"{problem}'{namespace}' for the emulated api versions.")
    return await _resource(request, subscription, rid)


async def _resource(request: web.Request, subscription: Subscription, rid: ResourceId) -> web.StreamResponse:
    if request.method in ("GET", "HEAD"):
        return web.json_response(views.resource(subscription, rid))
    if request.method == "DELETE":
        operation = subscription.delete(rid)
        return web.Response(status=204) if operation is None else _accepted(request, operation)
    if request.method not in ("PUT", "PATCH"):
        raise ArmError(405, "MethodNotAllowed", f"{request.method} is not allowed on {rid}.")
    kind = kind_of(rid.type)
    assert kind is not None  # noqa: S101  (checked by the caller)
    body = await _body(request)
    if request.method == "PATCH":
        current = subscription.element(rid) if kind.is_child else subscription.find(rid).body
        body = _merged(current, check(model(kind.patch_model), body))
    body = check(kind.model, body)
    body.pop("id", None)
    new, operation = subscription.put(rid, body, request.method.lower())
    headers = _headers(request, operation) if operation is not None else {}
    headers.pop("Location", None)
    shown = views.resource(subscription, rid)
    return web.json_response(shown, status=201 if new else 200, headers=headers)


def _merged(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for name, value in change.items():
        before = result.get(name)
        merge = isinstance(before, dict) and isinstance(value, dict) and name != "tags"
        result[name] = _merged(before or {}, value) if merge else value
    return result


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.text() or "{}")
    except ValueError as error:
        problem = f"The request content was invalid and could not be deserialized: '{error}'."
        raise ArmError(400, "InvalidRequestContent", problem) from None
    if not isinstance(body, dict):
        raise ArmError(400, "InvalidRequestContent", "The request content was invalid: it is no object.")
    return body


def _list(subscription: Subscription, resource_type: str, group: str) -> web.Response:
    if resource_type and kind_of(resource_type) is None:
        namespace, _, name = resource_type.partition("/")
        problem = f"The resource type '{name}' could not be found in the namespace '{namespace}'."
        raise ArmError(400, "InvalidResourceType", problem)
    found = [
        views.resource(subscription, r.id)
        for r in list(subscription.resources.values())
        if (not resource_type or r.kind.type.lower() == resource_type.lower())
        and (not group or r.id.group.lower() == group.lower())
    ]
    return web.json_response({"value": found})


def _list_children(subscription: Subscription, parent: ResourceId, collection: str) -> web.Response:
    kind = kind_of(f"{parent.type}/{collection}")
    record = subscription.find(parent)
    if kind is None:
        raise ArmError(400, "InvalidResourceType", f"The resource type '{collection}' could not be found.")
    names = [e["name"] for e in record.children(kind.collection)]
    found = [views.resource(subscription, parent.child(kind.collection, n)) for n in names]
    return web.json_response({"value": found})


def _headers(request: web.Request, operation: Operation) -> dict[str, str]:
    base = f"{request.scheme}://{request.host}/subscriptions/{request.app[SUBSCRIPTION].id}"
    version = f"?api-version={request.query['api-version']}"
    return {
        "Azure-AsyncOperation": f"{base}{operation.path}{version}",
        "Location": f"{base}{operation.result_path}{version}",
        **_ASK_AGAIN,
    }


def _accepted(request: web.Request, operation: Operation) -> web.Response:
    headers = _headers(request, operation)
    if operation.namespace == GROUP.type.split("/", maxsplit=1)[0]:
        del headers["Azure-AsyncOperation"]
    return web.Response(status=202, headers=headers)


async def _operation(
    request: web.Request, subscription: Subscription, operation_id: str, result: bool
) -> web.Response:
    operation = subscription.operations.get(operation_id)
    if operation is None:
        problem = f"The operation '{operation_id}' could not be found."
        raise ArmError(404, "OperationNotFound", problem)
    await operation.hold()
    if not result:
        return web.json_response(operation.body(), headers=_ASK_AGAIN)
    if not operation.done.is_set():
        return web.Response(status=202, headers=_headers(request, operation))
    if operation.error is not None:
        raise operation.error
    if operation.result is None:
        return web.Response(status=200)
    return web.json_response(operation.result)
