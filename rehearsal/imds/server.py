"""The Instance Metadata Service inside every emulated network: ``http://169.254.169.254``.

A node is identified by the address its connection comes from, which nothing that runs on it can change. The
listening socket is bound within the network's namespaces and served here, where the subscription is.
Requests below ``/subscriptions`` with a token that was issued here are passed on to the emulated Resource
Manager, and metrics for Azure Monitor are taken: nodes reach neither in any other way.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web

from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.monitor.ingestion import PREFIX, take_metrics
from rehearsal.arm.services import SharedState
from rehearsal.imds.instance import as_text, below, document
from rehearsal.imds.tokens import TokenError, token_body
from rehearsal.imds.vm_registry import RegisteredVm, find_vm, identities

__all__ = ["Metadata"]

_API_VERSION = re.compile(r"20\d{2}-\d{2}-\d{2}")
_NEWEST = ("2021-12-13", "2021-11-15", "2021-11-01")
_PASSED_ON = ("Authorization", "Content-Type", "Accept", "If-Match", "If-None-Match")
_HANDED_BACK = ("Azure-AsyncOperation", "Location", "Retry-After", "ETag", "WWW-Authenticate")
_TOKEN = "metadata/identity/oauth2/token"  # noqa: S105 - a path
_BACKLOG = 1024

_log = logging.getLogger("rehearsal.metadata")


class Metadata:
    """Service of all networks of a subscription; ``arm`` is the Resource Manager's address."""

    def __init__(self, shared: SharedState, arm: str) -> None:
        self._shared, self._subscription, self._arm = shared, shared.subscription, arm
        self._servers: dict[str, tuple[asyncio.Server, web.Server]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(
        self, network: str, listener: socket.socket, may_ask: Callable[..., Awaitable[bool]]
    ) -> None:
        """Serve a network at a bound socket, which this object then owns.

        ``may_ask(address=…, port=…)`` is whether a VM lets out what comes from there.
        """
        server = web.Server(partial(self._answer, network, may_ask), access_log=None)
        loop = asyncio.get_running_loop()
        self._servers[network] = await loop.create_server(server, sock=listener, backlog=_BACKLOG), server

    async def close(self, network: str) -> None:
        """End the service of a network."""
        found = self._servers.pop(network, None)
        if found is not None:
            found[0].close()
            await found[1].shutdown(0.1)

    async def close_all(self) -> None:
        """End the service everywhere."""
        for network in tuple(self._servers):
            await self.close(network)
        if self._session is not None:
            await self._session.close()

    async def _answer(
        self, network: str, may_ask: Callable[..., Awaitable[bool]], request: web.BaseRequest
    ) -> web.StreamResponse:
        try:
            peer = request.transport.get_extra_info("peername") if request.transport else None
            found = find_vm(self._subscription, network, peer[0]) if peer else None
            if found is None:
                return _error(404, "Not found. No virtual machine has this address")
            if request.path.lower().startswith("/subscriptions/"):
                return await self._pass_on(request)
            if request.path.lower().startswith(PREFIX):
                return await take_metrics(request, self._subscription, self._shared.tokens)
            if peer and not await may_ask(address=peer[0], port=peer[1]):
                if request.transport is not None:
                    request.transport.abort()
                return _error(403, "Forbidden. The VM's own rules do not let this out")
            return await self._of_node(request, found)
        except aiohttp.ClientError as error:
            return _error(502, f"Bad gateway. {error}")
        except Exception:
            _log.exception("%s %s", request.method, request.path)
            raise

    async def _of_node(self, request: web.BaseRequest, of: RegisteredVm) -> web.StreamResponse:
        parts = tuple(part for part in request.path.split("/") if part)
        place = "/".join(parts).lower()
        refusal = _refusal(request, place == _TOKEN) if place.startswith("metadata/") else None
        if refusal is not None:
            return refusal
        if place == _TOKEN:
            return self._token(request, of)
        if place == "metadata/scheduledevents":
            return await self._events(request, of)
        if f"{place}/".startswith("metadata/instance/"):
            return self._instance(request, of, parts[2:])
        return _error(404, "Not found")

    def _instance(self, request: web.BaseRequest, of: RegisteredVm, path: tuple[str, ...]) -> web.Response:
        if request.method != "GET":
            return _error(405, "Method not allowed. Only GET requests are supported")
        try:
            found = below(document(of, self._prefix(of)), path)
        except LookupError:
            return _error(404, "Not found")
        if request.query.get("format", "json").lower() == "text":
            return web.Response(text=as_text(found))
        if not isinstance(found, (dict, list)):
            return _error(
                400,
                "Bad request. The default format, json, has no form for a single value: ask for format=text",
            )
        return web.json_response(found)

    def _prefix(self, of: RegisteredVm) -> str:
        rid = ResourceId.parse(of.subnet)
        properties = self._subscription.element(rid).get("properties") if rid is not None else None
        return str((properties or {}).get("addressPrefix") or f"{of.machine.private_ip}/32")

    async def _events(self, request: web.BaseRequest, of: RegisteredVm) -> web.Response:
        events = self._shared.events
        if request.method == "GET":
            return web.json_response(events.document(of.scope, of.vm_id))
        if request.method != "POST":
            return _error(405, "Method not allowed")
        try:
            wanted = [one["EventId"] for one in json.loads(await request.text())["StartRequests"]]
        except (ValueError, KeyError, TypeError):
            return _error(400, "Bad request. StartRequests is a list of objects with an EventId")
        known = [events.approve(of.scope, str(one)) for one in wanted]
        if not all(known):
            return _error(400, "Bad request. There is no event with this EventId")
        return web.Response(status=200)

    def _token(self, request: web.BaseRequest, of: RegisteredVm) -> web.Response:
        if request.method != "GET":
            return _error(405, "Method not allowed. Only GET requests are supported")
        held = identities(self._subscription, of)
        try:
            return web.json_response(token_body(held, self._shared.tokens, request.query))
        except TokenError as error:
            return web.json_response(error.body(), status=400)

    async def _pass_on(self, request: web.BaseRequest) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        if not authorization:
            return _refused(
                "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing."
            )
        if self._shared.tokens.bearer(authorization) is None:
            return _refused("InvalidAuthenticationToken", "The access token is invalid.")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        body = await request.read()
        url = f"{self._arm}{request.path_qs}"
        async with self._session.request(request.method, url, headers=headers, data=body) as answer:
            # Operations are polled through here, too: the endpoint itself is out of a node's reach.
            kept = {
                name: answer.headers[name].replace(self._arm, f"http://{request.host}")
                for name in _HANDED_BACK
                if name in answer.headers
            }
            return web.Response(
                status=answer.status, body=await answer.read(), headers=kept, content_type=answer.content_type
            )


def _refusal(request: web.BaseRequest, is_token: bool) -> web.Response | None:
    problem = ""
    extra: dict[str, Any] = {}
    version = request.query.get("api-version", "")
    if request.headers.get("Metadata", "").lower() != "true":
        problem = "Required metadata header not specified"
    elif "X-Forwarded-For" in request.headers:
        problem = "Requests with an X-Forwarded-For header are not served"
    elif not version:
        problem = (
            "api-version was not specified in the request. For more information refer to aka.ms/azureimds"
        )
        extra = {"newest-versions": list(_NEWEST)}
    elif not _API_VERSION.fullmatch(version):
        problem = "api-version is invalid or was not specified in the request"
        extra = {"newest-versions": list(_NEWEST)}
    if not problem:
        return None
    if is_token:
        body = {"error": "invalid_request", "error_description": problem}
        return web.json_response(body, status=400)
    return _error(400, f"Bad request. {problem}", **extra)


def _error(status: int, text: str, **extra: Any) -> web.Response:
    return web.json_response({"error": text, **extra}, status=status)


def _refused(code: str, message: str) -> web.Response:
    headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return web.json_response({"error": {"code": code, "message": message}}, status=401, headers=headers)
