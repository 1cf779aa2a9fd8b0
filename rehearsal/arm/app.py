"""The HTTP face of the emulated Azure Resource Manager: who asks, and for what."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from rehearsal.arm import actions, listings, resource_api
from rehearsal.arm.auth.authentication import SENDER, Unproven, asks_for_token
from rehearsal.arm.auth.authorization import check_right
from rehearsal.arm.compute import scale_set_api
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Faults, Operation
from rehearsal.arm.core.registry import KINDS, kind_of
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.offers import market
from rehearsal.arm.storage.blobs import Blobs
from rehearsal.listener import Listener
from rehearsal.vms.api import Machines

__all__ = ["SUBSCRIPTION", "UNPROVEN", "listen", "make_app"]

SUBSCRIPTION = web.AppKey("subscription", Subscription)
UNPROVEN = web.AppKey("unproven", Unproven)
_API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-\w+)?")
_PROVIDERS = "/providers/"
_WHO = 401


def make_app(
    machines: Machines,
    subscription_id: str,
    token: str,
    faults: Faults | None = None,
    blobs: Blobs | None = None,
) -> web.Application:
    """Return the endpoint over an empty subscription, whose operator has this token.

    Its state is ``app[SUBSCRIPTION]``.
    """
    subscription, unproven = Subscription(subscription_id, machines, faults, blobs), Unproven()
    app = web.Application(middlewares=[_answers, asks_for_token(token, subscription, unproven)])
    app[SUBSCRIPTION], app[UNPROVEN] = subscription, unproven
    app.router.add_route("*", "/{tail:.*}", _dispatch)
    app.cleanup_ctx.append(_warm)
    app.on_cleanup.append(_close)
    return app


def listen(runner: web.AppRunner, app: web.Application, port: int = 0) -> Listener:
    """Serve the app, whose runner is set up, at a port that this user alone can reach."""
    server, unproven = runner.server, app[UNPROVEN]
    assert server is not None  # noqa: S101 - it is set up

    async def serve(client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(server, client)
        unproven.add(transport)

    listener = Listener(serve, port)
    listener.start()
    return listener


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
        # What Azure, too, says of a token that it does not take.
        headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'} if error.status == _WHO else None
        return web.json_response({"error": error.body()}, status=error.status, headers=headers)


async def _dispatch(request: web.Request) -> web.StreamResponse:
    subscription = request.app[SUBSCRIPTION]
    _check_version(request)
    check_right(request, subscription, request[SENDER].identity)
    sold = market.answer(request, subscription)
    if sold is not None:
        return sold
    path = request.path.rstrip("/")
    parts = [p for p in path.split("/") if p]
    if [p.lower() for p in parts] == ["subscriptions"]:
        return web.json_response({"value": [_shown(subscription)]})
    if len(parts) < len(("subscriptions", "id")) or parts[0].lower() != "subscriptions":
        raise ArmError(404, "NotFound", f"No such path: {request.path}")
    if parts[1].lower() != subscription.id.lower():
        problem = f"The subscription '{parts[1]}' could not be found."
        raise ArmError(404, "SubscriptionNotFound", problem)
    return await _in_subscription(request, subscription, path, parts[2:])


async def _in_subscription(
    request: web.Request, subscription: Subscription, path: str, parts: list[str]
) -> web.StreamResponse:
    lower = [p.lower() for p in parts]
    if not lower:
        return web.json_response(_shown(subscription))
    if lower[-2:-1] in (["operations"], ["operationresults"]):
        result = lower[-2] == "operationresults"
        return await resource_api.operation_status(request, subscription, parts[-1], result)
    if lower == ["resourcegroups"]:
        return listings.groups(subscription, request)
    if lower == ["resources"]:
        return listings.resources(subscription, request)
    if lower[0] == "resourcegroups" and lower[2:] == ["resources"]:
        subscription.group(ResourceId(subscription.id, parts[1]))
        return listings.resources(subscription, request, parts[1])
    return await _by_id(request, subscription, path)


def _shown(subscription: Subscription) -> dict[str, str]:
    shown = {"id": f"/subscriptions/{subscription.id}", "subscriptionId": subscription.id}
    return {**shown, "displayName": "Rehearsal", "state": "Enabled"}


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


async def _by_id(request: web.Request, subscription: Subscription, path: str) -> web.StreamResponse:
    cut = path.lower().rfind(_PROVIDERS)
    if cut < 0:
        group = ResourceId.parse(path)
        if group is None:
            raise ArmError(404, "NotFound", f"No such path: {request.path}")
        return await resource_api.answer(request, subscription, group)
    scope = ResourceId.parse(path[:cut])
    namespace, *rest = path[cut + len(_PROVIDERS) :].split("/")
    if scope is None or not rest:
        raise ArmError(404, "NotFound", f"No such path: {request.path}")
    parts = tuple(rest)
    special = await _special(request, subscription, scope.extended(namespace, parts))
    if special is not None:
        return special
    if not any(k.startswith(f"{namespace.lower()}/") for k in KINDS):
        raise ArmError(404, "InvalidResourceNamespace", f"The resource namespace '{namespace}' is invalid.")
    if len(parts) % 2:
        return _list(request, subscription, scope, namespace, parts)
    rid = scope.extended(namespace, parts)
    if kind_of(rid.type) is None:
        problem = f"The resource type '{rid.type.partition('/')[2]}' could not be found in the namespace "
        raise ArmError(400, "InvalidResourceType", f"{problem}'{namespace}' for the emulated api versions.")
    return await resource_api.answer(request, subscription, rid)


async def _special(
    request: web.Request, subscription: Subscription, rid: ResourceId
) -> web.StreamResponse | None:
    if not rid.group:
        return None
    answer = await scale_set_api.answer(
        request, subscription, ResourceId(rid.subscription, rid.group), rid.parts
    )
    if answer is None:
        return await _action(request, subscription, rid)
    if answer.operation is None:
        return answer.response()
    return resource_api.accepted(request, subscription, answer.operation)


async def _action(
    request: web.Request, subscription: Subscription, rid: ResourceId
) -> web.StreamResponse | None:
    if len(rid.parts) % 2 == 0:
        return None
    of, last = rid.base.extended(rid.namespace, rid.parts[:-1]), rid.parts[-1]
    if request.method == "POST":
        done = await actions.act(subscription, of, last)
        return resource_api.accepted(request, subscription, done) if isinstance(done, Operation) else done
    return await actions.look(subscription, of, last) if request.method == "GET" else None


def _list(
    request: web.Request,
    subscription: Subscription,
    scope: ResourceId,
    namespace: str,
    parts: tuple[str, ...],
) -> web.StreamResponse:
    kind = kind_of("/".join((namespace, *parts[::2])))
    if kind is not None and kind.extends:
        return listings.extensions(subscription, scope, kind.type, request)
    if len(parts) > 1:
        return listings.children(subscription, scope.extended(namespace, parts[:-1]), parts[-1])
    if scope.group:
        subscription.group(scope)
    return listings.of_type(subscription, f"{namespace}/{parts[0]}", scope.group)
