"""Authentication of requests: by the operator's token or by a managed identity's.

Azure asks for a token with every request, and so does a rehearsal: a random one that is in its record, which
only whoever rehearses can read, or one that the metadata service issued to a node. Nothing but the headers of
a request is read before it is authenticated.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from rehearsal.arm.core.errors import ArmError
from rehearsal.imds.tokens import Token, Tokens

__all__ = ["SENDER", "UNPROVEN", "Sender", "Unproven", "asks_for_token", "sender_of"]


@dataclass(frozen=True, slots=True)
class Sender:
    """Sender of a request, by its token."""

    identity: Token | None
    """Token of an identity; None: the operator's."""


SENDER = web.RequestKey("sender", Sender)
"""Key of the sender in every request that is served."""


def sender_of(authorization: str, operator: str, tokens: Tokens) -> Sender:
    """Return the sender by an ``Authorization`` header; ``operator`` is the operator's token.

    Raises :class:`ArmError`, as Azure answers it, where there is no token or one that is not known.
    """
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        problem = "Authentication failed. The 'Authorization' header is missing."
        raise ArmError(401, "AuthenticationFailed", problem)
    if hmac.compare_digest(text.strip().encode("utf-8", "surrogateescape"), operator.encode()):
        return Sender(None)
    token = tokens.find(text.strip())
    if token is None:
        # Also for one that has expired, which Azure would call ExpiredAuthenticationToken.
        raise ArmError(401, "InvalidAuthenticationToken", "The access token is invalid.")
    return Sender(token)


class Unproven:
    """Connections without a known token yet: few, and not for long.

    A new one beyond ``limit`` closes the oldest, and each is closed after ``seconds``.
    """

    def __init__(self, limit: int = 64, seconds: float = 10.0) -> None:
        self._limit, self._seconds = limit, seconds
        self._open: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, transport: asyncio.Transport) -> None:
        """Add a connection that was just accepted."""
        if len(self._open) >= self._limit:
            self._end(next(iter(self._open)))
        timer = asyncio.get_running_loop().call_later(self._seconds, self._end, transport)
        self._open[transport] = timer

    def discard(self, transport: asyncio.BaseTransport | None) -> None:
        """Drop a connection that has shown a token, or has ended."""
        timer = self._open.pop(transport, None) if transport is not None else None
        if timer is not None:
            timer.cancel()

    def _end(self, transport: asyncio.BaseTransport) -> None:
        self.discard(transport)
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        transport.abort()


UNPROVEN = web.AppKey("unproven", Unproven)
"""Key of an application's connections without a known token."""


def asks_for_token(operator: str, tokens: Tokens, unproven: Unproven) -> Middleware:
    """Return the middleware that refuses requests without a token, and those for another host.

    A web page that had its name resolved to 127.0.0.1 sends its own name as ``Host``, and is refused.
    """

    @web.middleware
    async def ask(request: web.Request, handler: Handler) -> web.StreamResponse:
        address = request.get_extra_info("sockname")
        if request.headers.get("Host") not in (f"127.0.0.1:{address[1]}", f"localhost:{address[1]}"):
            problem = "The host of the request is not this endpoint's address on the loopback interface."
            raise ArmError(400, "InvalidHostName", problem)
        authorization = request.headers.get("Authorization", "")
        request[SENDER] = sender_of(authorization, operator, tokens)
        unproven.discard(request.transport)
        return await handler(request)

    return ask
