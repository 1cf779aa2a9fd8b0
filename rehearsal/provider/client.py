"""The provider's way to the resource manager: one request, then its operation to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.registry import kind_of

__all__ = ["ArmClient", "Interrupted"]

_NOT_FOUND = 404
_BAD = 400
_THROTTLED = 429
_TRIES = 4
"""azcore, with which the real provider asks, tries a throttled request three times more."""
_AGAIN = ("AnotherOperationInProgress", "Conflict")
_WAIT = 0.1


class Interrupted(Exception):
    """The engine cancelled; what Azure was told goes on there."""


class ArmClient:
    """Asks the endpoint at ``url`` with the operator's token; ``cancelled`` tells whether to stop waiting."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()

    async def _send(self, method: str, url: str, body: Any = None) -> tuple[Any, aiohttp.ClientResponse]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=60), headers={"Authorization": f"Bearer {self._token}"}
            )
        for _ in range(_TRIES):
            async with self._session.request(method, url, json=body) as answer:
                said = await answer.json() if answer.content_type == "application/json" else None
            if answer.status != _THROTTLED:
                break
            await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
        if answer.status >= _BAD:
            error = (said or {}).get("error") or {}
            raise ArmError(
                answer.status,
                error.get("code", str(answer.status)),
                error.get("message", ""),
                error.get("target"),
            )
        return said, answer

    def _address(self, rid: ResourceId) -> str:
        kind = kind_of(rid.type)
        if kind is None:
            raise ArmError(400, "InvalidResourceType", f"{rid}: the rehearsal does not emulate {rid.type}.")
        return f"{self._url}{rid}?api-version={kind.api_version}"

    async def get(self, rid: ResourceId) -> dict[str, Any] | None:
        """The resource, or None when there is none."""
        try:
            said, _ = await self._send("GET", self._address(rid))
        except ArmError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        found: dict[str, Any] = said
        return found

    async def start(
        self, method: str, rid: ResourceId, body: Any, cancelled: Callable[[], bool]
    ) -> aiohttp.ClientResponse:
        """Sends a write, again and again while another operation holds the resource.

        Raises :class:`ArmError` with Azure's refusal, :class:`Interrupted` when cancelled before it is sent.
        """
        while True:
            if cancelled():
                raise Interrupted
            try:
                _, answer = await self._send(method, self._address(rid), body)
            except ArmError as error:
                if error.code not in _AGAIN:
                    raise
                await asyncio.sleep(_WAIT)
            else:
                return answer

    async def wait(self, answer: aiohttp.ClientResponse, cancelled: Callable[[], bool]) -> None:
        """Asks for the operation that a write started until it has ended.

        Raises :class:`ArmError` with what failed there, :class:`Interrupted` when cancelled.
        """
        operation, location = answer.headers.get("Azure-AsyncOperation"), answer.headers.get("Location")
        while operation or location:
            if cancelled():
                raise Interrupted
            if operation:
                said, _ = await self._send("GET", operation)
                if said["status"] in ("Failed", "Canceled"):
                    error = said.get("error") or {}
                    raise ArmError(409, error.get("code", said["status"]), error.get("message", ""))
                if said["status"] == "Succeeded":
                    return
            elif location:
                _, polled = await self._send("GET", location)
                location = polled.headers.get("Location")
            await asyncio.sleep(0.01)
