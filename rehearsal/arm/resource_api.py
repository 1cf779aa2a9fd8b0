"""One resource over HTTP: GET, PUT, PATCH and DELETE, and the operations they start."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.models import check, model
from rehearsal.arm.core.operations import Operation
from rehearsal.arm.core.resource_manager import ResourceManager
from rehearsal.arm.core.resource_type import GROUP, ResourceType
from rehearsal.arm.offers.regions import check_region

__all__ = ["accepted", "answer", "json_body", "operation_status"]

# Azure's clients poll every 30 s by default, and ignore `Retry-After: 0`.
_POLL_AGAIN = {"x-ms-retry-after-ms": "50"}

_OK, _ACCEPTED = 200, 202


async def answer(request: web.Request, manager: ResourceManager, rid: ResourceId) -> web.StreamResponse:
    """Answer a request for the resource ``rid``, whose type is known."""
    subscription = manager.subscription
    kind = subscription.types.find(rid.type)
    assert kind is not None  # noqa: S101  (checked by the caller)
    if request.method in ("GET", "HEAD"):
        return web.json_response(manager.hooks(kind).built_in().get(rid.name.lower()) or manager.view(rid))
    if request.method == "DELETE":
        return await _delete(request, manager, rid, kind)
    if request.method not in ("PUT", "PATCH"):
        raise ArmError(405, "MethodNotAllowed", f"{request.method} is not allowed on {rid}.")
    body = await json_body(request)
    if request.method == "PATCH":
        current = subscription.element(rid) if kind.embedded else subscription.find(rid).body
        body = _merged(current, check(model(kind.patch_model), body))
    body = check(kind.model, body)
    body.pop("id", None)
    _refuse_outdated(request, manager, rid)
    if "location" in body:
        check_region(rid, body["location"])
    new, operation = manager.put(rid, body, request.method.lower())
    if (kind.sync or (kind.sync_later and not new)) and operation is not None:
        await _settled(manager, rid, operation, new)
        operation = None
    headers = _headers(request, manager, operation) if operation is not None else {}
    # Each provider has one way of polling.
    headers.pop("Azure-AsyncOperation" if kind.created == _ACCEPTED else "Location", None)
    shown = manager.view(rid)
    status = kind.created if new or (headers and kind.created == _ACCEPTED) else _OK
    return web.json_response(shown, status=status, headers=headers)


def _refuse_outdated(request: web.Request, manager: ResourceManager, rid: ResourceId) -> None:
    """Obey ``If-Match``. That Azure answers 412 is documented; its text is not."""
    wanted = request.headers.get("If-Match")
    current = manager.view(rid).get("etag") if manager.subscription.exists(rid) else None
    if wanted is not None and (current is None or wanted not in ("*", current)):
        problem = f"If-Match is {wanted}, and the etag of {rid.name} is {current}."
        raise ArmError(412, "PreconditionFailed", problem)


async def _settled(manager: ResourceManager, rid: ResourceId, operation: Operation, new: bool) -> None:
    await operation.done.wait()
    if operation.error is None:
        return
    if new:
        manager.forget(manager.subscription.find(rid))
    raise operation.error


async def _delete(
    request: web.Request, manager: ResourceManager, rid: ResourceId, kind: ResourceType
) -> web.StreamResponse:
    shown = manager.view(rid) if kind.extends and manager.subscription.exists(rid) else None
    operation = manager.delete(rid)
    if operation is None:
        return web.Response(status=204)
    if not (kind.sync or kind.sync_later):
        return accepted(request, manager, operation)
    await _settled(manager, rid, operation, new=False)
    return web.json_response(shown) if shown is not None else web.Response(status=200)


def _merged(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for name, value in change.items():
        before = result.get(name)
        merge = isinstance(before, dict) and isinstance(value, dict) and name != "tags"
        result[name] = _merged(before or {}, value) if merge else value
    return result


async def json_body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in the request."""
    try:
        body = json.loads(await request.text() or "{}")
    except ValueError as error:
        problem = f"The request content was invalid and could not be deserialized: '{error}'."
        raise ArmError(400, "InvalidRequestContent", problem) from None
    if not isinstance(body, dict):
        raise ArmError(400, "InvalidRequestContent", "The request content was invalid: it is not an object.")
    return body


# -- operations -------------------------------------------------------------------------------------------


def _headers(request: web.Request, manager: ResourceManager, operation: Operation) -> dict[str, str]:
    base = f"{request.scheme}://{request.host}/subscriptions/{manager.subscription.id}"
    version = f"?api-version={request.query['api-version']}"
    return {
        "Azure-AsyncOperation": f"{base}{operation.path}{version}",
        "Location": f"{base}{operation.result_path}{version}",
        **_POLL_AGAIN,
    }


def accepted(request: web.Request, manager: ResourceManager, operation: Operation) -> web.Response:
    """Return the answer to a request that Azure took: where its operation is polled."""
    headers = _headers(request, manager, operation)
    if operation.namespace == GROUP.namespace:
        del headers["Azure-AsyncOperation"]
    return web.Response(status=202, headers=headers)


async def operation_status(
    request: web.Request, manager: ResourceManager, operation_id: str, result: bool
) -> web.Response:
    """Return the state of an operation, with ``result`` its result."""
    operation = manager.operations.get(operation_id)
    if operation is None:
        problem = f"The operation '{operation_id}' could not be found."
        raise ArmError(404, "OperationNotFound", problem)
    await operation.hold()
    if not result:
        return web.json_response(operation.body(), headers=_POLL_AGAIN)
    if not operation.done.is_set():
        return web.Response(status=202, headers=_headers(request, manager, operation))
    if operation.error is not None:
        raise operation.error
    subject = operation.subject
    if operation.result is None and subject is not None and manager.subscription.exists(subject):
        return web.json_response(manager.view(subject))
    if operation.result is None:
        return web.Response(status=200)
    return web.json_response(operation.result)
