"""HTTP endpoint of the emulated Azure Resource Manager: construction and routes."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from rehearsal.arm import listings, resource_api
from rehearsal.arm.auth.authentication import SENDER, UNPROVEN, Unproven, asks_for_token
from rehearsal.arm.auth.authorization import check_right, sees
from rehearsal.arm.auth.identities import AssignedIdentities
from rehearsal.arm.compute.scale_set_api import ScaleSetApi
from rehearsal.arm.core.errors import ArmError, unknown_type
from rehearsal.arm.core.hooks import Work
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Faults, Operation
from rehearsal.arm.core.resource_manager import ResourceManager
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.network.nat_rules import NatRules
from rehearsal.arm.offers import market
from rehearsal.arm.services import Services, SharedState
from rehearsal.arm.storage.blobs import Blobs
from rehearsal.listener import Listener
from rehearsal.vms.api import Machines

__all__ = ["MANAGER", "SERVICES", "listen", "make_app"]

MANAGER = web.AppKey("manager", ResourceManager)
SERVICES = web.AppKey("services", Services)
_API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-\w+)?")
_PROVIDERS = "/providers/"
_WHO = 401


def make_app(
    shared: SharedState,
    machines: Machines,
    token: str,
    *,
    faults: Faults | None = None,
    scarcity: market.Scarcity | None = None,
    middlewares: Sequence[Middleware] = (),
    blobs: Blobs | None = None,
) -> web.Application:
    """Return the endpoint over a subscription, whose operator has this ``token``.

    ``middlewares`` see requests after their authentication; ``faults`` hit writes, ``scarcity`` hits VMs.
    """
    subscription, unproven = shared.subscription, Unproven()
    services = Services(
        subscription,
        machines,
        NatRules(subscription, machines),
        market.Market(subscription, scarcity or market.Scarcity()),
        shared.events,
        blobs or Blobs(),
    )
    hooks = subscription.types.hooks(services)
    manager = ResourceManager(subscription, hooks, (AssignedIdentities(services),), faults)
    app = web.Application(
        middlewares=[_answers, asks_for_token(token, shared.tokens, unproven), *middlewares]
    )
    app[MANAGER], app[SERVICES], app[UNPROVEN] = manager, services, unproven
    app.router.add_route("*", "/{tail:.*}", _dispatch)
    app.cleanup_ctx.append(_warm)
    app.on_cleanup.append(_close)
    return app


def listen(runner: web.AppRunner, app: web.Application, own: socket.socket) -> Listener:
    """Serve the app, whose runner is set up, at a bound socket whose port this user alone can reach."""
    server, unproven = runner.server, app[UNPROVEN]
    assert server is not None  # noqa: S101 - it is set up

    async def serve(client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(server, client)
        unproven.add(transport)

    listener = Listener(serve, own)
    listener.start()
    return listener


async def _warm(app: web.Application) -> AsyncIterator[None]:
    # Microsoft's models take seconds to import; the first request must not wait for them, nor the start.
    types = app[MANAGER].subscription.types
    imported = asyncio.gather(*(asyncio.to_thread(lambda kind: kind.model, kind) for kind in types))
    yield
    await imported


async def _close(app: web.Application) -> None:
    await app[MANAGER].close()
    await app[SERVICES].blobs.close()


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
    subscription = request.app[MANAGER].subscription
    _check_version(request)
    check_right(request, subscription, request[SENDER].identity)
    offer = market.answer(request, request.app[SERVICES].market)
    if offer is not None:
        return offer
    path = request.path.rstrip("/")
    parts = [p for p in path.split("/") if p]
    if [p.lower() for p in parts] == ["subscriptions"]:
        seen = sees(subscription, request[SENDER].identity)
        return web.json_response({"value": [_shown(subscription)] if seen else []})
    if len(parts) < len(("subscriptions", "id")) or parts[0].lower() != "subscriptions":
        raise ArmError(404, "NotFound", f"No such path: {request.path}")
    if parts[1].lower() != subscription.id.lower():
        problem = f"The subscription '{parts[1]}' could not be found."
        raise ArmError(404, "SubscriptionNotFound", problem)
    return await _in_subscription(request, path, parts[2:])


async def _in_subscription(request: web.Request, path: str, parts: list[str]) -> web.StreamResponse:
    manager = request.app[MANAGER]
    lower = [p.lower() for p in parts]
    if not lower:
        return web.json_response(_shown(manager.subscription))
    if lower[-2:-1] in (["operations"], ["operationresults"]):
        result = lower[-2] == "operationresults"
        return await resource_api.operation_status(request, manager, parts[-1], result)
    if lower == ["resourcegroups"]:
        return listings.groups(manager, request)
    if lower == ["resources"]:
        return listings.resources(manager, request)
    if lower[0] == "resourcegroups" and lower[2:] == ["resources"]:
        manager.subscription.group(ResourceId(manager.subscription.id, parts[1]))
        return listings.resources(manager, request, parts[1])
    return await _by_id(request, manager, path)


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


async def _by_id(request: web.Request, manager: ResourceManager, path: str) -> web.StreamResponse:
    cut = path.lower().rfind(_PROVIDERS)
    if cut < 0:
        group = ResourceId.parse(path)
        if group is None:
            raise ArmError(404, "NotFound", f"No such path: {request.path}")
        return await resource_api.answer(request, manager, group)
    scope = ResourceId.parse(path[:cut])
    namespace, *rest = path[cut + len(_PROVIDERS) :].split("/")
    if scope is None or not rest:
        raise ArmError(404, "NotFound", f"No such path: {request.path}")
    parts = tuple(rest)
    special = await _special(request, manager, scope.extended(namespace, parts))
    if special is not None:
        return special
    types = manager.subscription.types
    if namespace.lower() not in types.namespaces:
        raise ArmError(404, "InvalidResourceNamespace", f"The resource namespace '{namespace}' is invalid.")
    if len(parts) % 2:
        return _list(request, manager, scope, namespace, parts)
    rid = scope.extended(namespace, parts)
    if types.find(rid.type) is None:
        raise unknown_type(rid.type.partition("/")[2], namespace)
    return await resource_api.answer(request, manager, rid)


async def _special(
    request: web.Request, manager: ResourceManager, rid: ResourceId
) -> web.StreamResponse | None:
    if not rid.group:
        return None
    answer = await ScaleSetApi(manager, request.app[SERVICES]).answer(request, rid)
    if isinstance(answer, Operation):
        return resource_api.accepted(request, manager, answer)
    return answer if answer is not None else await _action(request, manager, rid)


async def _action(
    request: web.Request, manager: ResourceManager, rid: ResourceId
) -> web.StreamResponse | None:
    """Answer a POST of an action, or a GET of a part that is not a resource."""
    if len(rid.parts) % 2 == 0:
        return None
    of, name = rid.base.extended(rid.namespace, rid.parts[:-1]), rid.parts[-1]
    kind = manager.subscription.types.find(of.type)
    if request.method == "GET" and kind is not None:
        shown = await manager.hooks(kind).part(manager.subscription.find(of), name.lower())
        return web.json_response(shown) if shown is not None else None
    if request.method != "POST":
        return None
    record = manager.subscription.find(of)
    hooks = manager.hooks(kind if kind is not None else record.kind)
    done = hooks.act(of, record, name.lower(), await resource_api.json_body(request))
    if done is None:
        raise ArmError(404, "NotFound", f"The action '{name}' of {of.type} is not emulated.")
    if not isinstance(done, Work):
        return web.json_response(done)
    operation = manager.begin(record, "post", done.run, "Updating" if done.is_change else None)
    return resource_api.accepted(request, manager, operation)


def _list(
    request: web.Request, manager: ResourceManager, scope: ResourceId, namespace: str, parts: tuple[str, ...]
) -> web.StreamResponse:
    kind = manager.subscription.types.find("/".join((namespace, *parts[::2])))
    if kind is not None and kind.extends:
        return listings.extensions(manager, scope, kind, request)
    if len(parts) > 1:
        return listings.children(manager, scope.extended(namespace, parts[:-1]), parts[-1])
    if scope.group:
        manager.subscription.group(scope)
    return listings.of_type(manager, f"{namespace}/{parts[0]}", scope.group)
