"""Client of the resource manager: sends a request, then polls its operation to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.registry import ResourceTypes

__all__ = ["ArmClient", "Interrupted"]

_NOT_FOUND = 404
_BAD = 400
_THROTTLED = 429
_TRIES = 4
"""azcore, the real provider's client, repeats a throttled request three times."""
_AGAIN = ("AnotherOperationInProgress", "Conflict")
_WAIT = 0.1


class Interrupted(Exception):
    """The engine cancelled; operations that Azure has started go on there."""


class ArmClient:
    """Requests to the endpoint at ``url`` with the operator's token; ``cancelled`` ends their waits."""

    def __init__(self, url: str, token: str, types: ResourceTypes) -> None:
        self._url, self._token, self._types = url, token, types
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _send(self, method: str, url: str, body: Any = None) -> tuple[Any, aiohttp.ClientResponse]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=60), headers={"Authorization": f"Bearer {self._token}"}
            )
        for _ in range(_TRIES):
            async with self._session.request(method, url, json=body) as answer:
                parsed = await answer.json() if answer.content_type == "application/json" else None
            if answer.status != _THROTTLED:
                break
            await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
        if answer.status >= _BAD:
            error = (parsed or {}).get("error") or {}
            raise ArmError(
                answer.status,
                error.get("code", str(answer.status)),
                error.get("message", ""),
                error.get("target"),
            )
        return parsed, answer

    def _address(self, rid: ResourceId) -> str:
        kind = self._types.find(rid.type)
        if kind is None:
            raise ArmError(400, "InvalidResourceType", f"{rid}: the rehearsal does not emulate {rid.type}.")
        return f"{self._url}{rid}?api-version={kind.api_version}"

    async def get(self, rid: ResourceId) -> dict[str, Any] | None:
        """Return the resource; None when it does not exist."""
        try:
            parsed, _ = await self._send("GET", self._address(rid))
        except ArmError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        found: dict[str, Any] = parsed
        return found

    async def start(
        self, method: str, rid: ResourceId, body: Any, cancelled: Callable[[], bool]
    ) -> aiohttp.ClientResponse:
        """Send a write; repeat it while another operation is under way on the resource.

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
        """Poll the operation that a write started until it has ended.

        Raises :class:`ArmError` with what failed there, :class:`Interrupted` when cancelled.
        """
        operation, location = answer.headers.get("Azure-AsyncOperation"), answer.headers.get("Location")
        while operation or location:
            if cancelled():
                raise Interrupted
            if operation:
                parsed, _ = await self._send("GET", operation)
                if parsed["status"] in ("Failed", "Canceled"):
                    error = parsed.get("error") or {}
                    raise ArmError(409, error.get("code", parsed["status"]), error.get("message", ""))
                if parsed["status"] == "Succeeded":
                    return
            elif location:
                _, polled = await self._send("GET", location)
                location = polled.headers.get("Location")
            await asyncio.sleep(0.01)
