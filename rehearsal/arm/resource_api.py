"""One resource over HTTP: GET, PUT, PATCH and DELETE, and the operations they start."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from rehearsal.arm.auth.roles import built_in
from rehearsal.arm.core import views
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.models import check, model
from rehearsal.arm.core.operations import Operation
from rehearsal.arm.core.registry import GROUP, Kind, kind_of
from rehearsal.arm.core.subscription import Subscription

__all__ = ["accepted", "answer", "json_body", "operation_status"]

# Azure's clients wait 30 s between questions unless told otherwise, and take `Retry-After: 0` for silence.
_ASK_AGAIN = {"x-ms-retry-after-ms": "50"}

_OK, _ACCEPTED = 200, 202


async def answer(request: web.Request, subscription: Subscription, rid: ResourceId) -> web.StreamResponse:
    """The answer to a request for the resource ``rid``, of a type that is known."""
    kind = kind_of(rid.type)
    assert kind is not None  # noqa: S101  (checked by the caller)
    if request.method in ("GET", "HEAD"):
        fixed = built_in(subscription.id, rid.name) if kind.extends else None
        return web.json_response(fixed or views.resource(subscription, rid))
    if request.method == "DELETE":
        return await _delete(request, subscription, rid, kind)
    if request.method not in ("PUT", "PATCH"):
        raise ArmError(405, "MethodNotAllowed", f"{request.method} is not allowed on {rid}.")
    body = await json_body(request)
    if request.method == "PATCH":
        current = subscription.element(rid) if kind.embedded else subscription.find(rid).body
        body = _merged(current, check(model(kind.patch_model), body))
    body = check(kind.model, body)
    body.pop("id", None)
    _refuse_outdated(request, subscription, rid)
    new, operation = subscription.put(rid, body, request.method.lower())
    if (kind.sync or (kind.sync_later and not new)) and operation is not None:
        await _settled(subscription, rid, operation, new)
        operation = None
    headers = _headers(request, subscription, operation) if operation is not None else {}
    # Asked about in one way or the other, as the provider has it.
    headers.pop("Azure-AsyncOperation" if kind.created == _ACCEPTED else "Location", None)
    shown = views.resource(subscription, rid)
    status = kind.created if new or (headers and kind.created == _ACCEPTED) else _OK
    return web.json_response(shown, status=status, headers=headers)


def _refuse_outdated(request: web.Request, subscription: Subscription, rid: ResourceId) -> None:
    """Holds ``If-Match``. That Azure answers 412 is documented; its words are not."""
    wanted = request.headers.get("If-Match")
    current = views.resource(subscription, rid).get("etag") if subscription.exists(rid) else None
    if wanted is not None and (current is None or wanted not in ("*", current)):
        problem = f"If-Match is {wanted}, and the etag of {rid.name} is {current}."
        raise ArmError(412, "PreconditionFailed", problem)


async def _settled(subscription: Subscription, rid: ResourceId, operation: Operation, new: bool) -> None:
    await operation.done.wait()
    if operation.error is None:
        return
    if new:
        subscription.forget(subscription.find(rid))
    raise operation.error


async def _delete(
    request: web.Request, subscription: Subscription, rid: ResourceId, kind: Kind
) -> web.StreamResponse:
    shown = views.resource(subscription, rid) if kind.extends and subscription.exists(rid) else None
    operation = subscription.delete(rid)
    if operation is None:
        return web.Response(status=204)
    if not (kind.sync or kind.sync_later):
        return accepted(request, subscription, operation)
    await operation.done.wait()
    if operation.error is not None:
        raise operation.error
    return web.json_response(shown) if shown is not None else web.Response(status=200)


def _merged(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for name, value in change.items():
        before = result.get(name)
        merge = isinstance(before, dict) and isinstance(value, dict) and name != "tags"
        result[name] = _merged(before or {}, value) if merge else value
    return result


async def json_body(request: web.Request) -> dict[str, Any]:
    """The object in the request."""
    try:
        body = json.loads(await request.text() or "{}")
    except ValueError as error:
        problem = f"The request content was invalid and could not be deserialized: '{error}'."
        raise ArmError(400, "InvalidRequestContent", problem) from None
    if not isinstance(body, dict):
        raise ArmError(400, "InvalidRequestContent", "The request content was invalid: it is no object.")
    return body


# -- operations -------------------------------------------------------------------------------------------


def _headers(request: web.Request, subscription: Subscription, operation: Operation) -> dict[str, str]:
    base = f"{request.scheme}://{request.host}/subscriptions/{subscription.id}"
    version = f"?api-version={request.query['api-version']}"
    return {
        "Azure-AsyncOperation": f"{base}{operation.path}{version}",
        "Location": f"{base}{operation.result_path}{version}",
        **_ASK_AGAIN,
    }


def accepted(request: web.Request, subscription: Subscription, operation: Operation) -> web.Response:
    """Azure took the request: where to ask what becomes of it."""
    headers = _headers(request, subscription, operation)
    if operation.namespace == GROUP.namespace:
        del headers["Azure-AsyncOperation"]
    return web.Response(status=202, headers=headers)


async def operation_status(
    request: web.Request, subscription: Subscription, operation_id: str, result: bool
) -> web.Response:
    """How far an operation is; with ``result`` what came of it."""
    operation = subscription.operations.get(operation_id)
    if operation is None:
        problem = f"The operation '{operation_id}' could not be found."
        raise ArmError(404, "OperationNotFound", problem)
    await operation.hold()
    if not result:
        return web.json_response(operation.body(), headers=_ASK_AGAIN)
    if not operation.done.is_set():
        return web.Response(status=202, headers=_headers(request, subscription, operation))
    if operation.error is not None:
        raise operation.error
    if operation.result is None and operation.subject is not None and subscription.exists(operation.subject):
        return web.json_response(views.resource(subscription, operation.subject))
    if operation.result is None:
        return web.Response(status=200)
    return web.json_response(operation.result)
