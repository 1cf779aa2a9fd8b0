"""Access tokens of identities: issued by the metadata service and the directory, checked by the endpoint.

They look like those of Microsoft Entra (three base64url parts, claims in the middle), so that software that
only reads the claims, as Azurite does, accepts them. They are not signed: only tokens on the list are valid.
A VM requests one at ``/metadata/identity/oauth2/token``, and gets those of its own identities only.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TENANT_ID", "Identity", "Token", "TokenError", "Tokens", "check_audience", "token_body"]

TENANT_ID = "00000000-0000-4000-8000-000000007e57"
"""Directory (tenant) of the emulated subscription."""

_RESOURCES = re.compile(
    r"https://(management\.azure\.com|management\.core\.windows\.net|storage\.azure\.com|vault\.azure\.net"
    r"|monitor\.azure\.com"
    r"|[a-z0-9]{3,24}\.(blob|file|queue|table)\.core\.windows\.net)/?"
)
"""Audiences of the tokens that a rehearsed node, or an application, may request."""

_LIFE_S = 86400.0
"""Lifetime of a managed identity's token for Resource Manager (learn.microsoft.com, managed identities)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A managed identity, as its resource shows it."""

    resource_id: str
    principal_id: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Token:
    """One token; times are Unix seconds."""

    text: str
    identity: Identity
    audience: str
    not_before: int
    expires_on: int


class Tokens:
    """Valid tokens; ``clock`` returns the time in Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known: dict[str, Token] = {}
        self._current: dict[tuple[str, str], Token] = {}

    def now(self) -> float:
        """Return the time in Unix seconds."""
        return self._clock()

    def issue(self, identity: Identity, audience: str) -> Token:
        """Return a token of the identity: the same one for half of its lifetime, as the real service."""
        now = int(self._clock())
        held = self._current.get((identity.principal_id, audience))
        if held is not None and held.expires_on - now > _LIFE_S / 2:
            return held
        self._known = {text: token for text, token in self._known.items() if token.expires_on > now}
        token = Token(_text(identity, audience, now), identity, audience, now, int(now + _LIFE_S))
        self._known[token.text] = self._current[identity.principal_id, audience] = token
        return token

    def find(self, text: str) -> Token | None:
        """Return the token while it is valid; None for any other text."""
        token = self._known.get(text)
        return token if token is not None and token.expires_on > self._clock() else None

    def bearer(self, authorization: str) -> Token | None:
        """Return the token in an ``Authorization`` header.

        >>> Tokens().bearer("Bearer made-up") is None
        True
        """
        scheme, _, text = authorization.partition(" ")
        return self.find(text.strip()) if scheme.lower() == "bearer" else None


def _text(identity: Identity, audience: str, now: int) -> str:
    claims = {
        "aud": audience,
        "iss": f"https://sts.windows.net/{TENANT_ID}/",
        "iat": now,
        "nbf": now,
        "exp": int(now + _LIFE_S),
        "appid": identity.client_id,
        "oid": identity.principal_id,
        "sub": identity.principal_id,
        "tid": TENANT_ID,
        "xms_mirid": identity.resource_id,
        "ver": "1.0",
    }
    head = {"typ": "JWT", "alg": "RS256", "kid": "rehearsal"}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, claims)
    ]
    return ".".join([*parts, secrets.token_urlsafe(64)])


class TokenError(Exception):
    """A refusal, in the form that the service gives it."""

    def __init__(self, error: str, description: str) -> None:
        self.error, self.description = error, description
        super().__init__(f"{error}: {description}")

    def body(self) -> dict[str, str]:
        """Return the answer's JSON."""
        return {"error": self.error, "error_description": self.description}


def check_audience(audience: str) -> None:
    """Raise :class:`TokenError` for an audience that is not one of Azure's services."""
    if not _RESOURCES.fullmatch(audience):
        problem = f"The resource principal named {audience} was not found in the tenant named {TENANT_ID}."
        raise TokenError("invalid_resource", f"AADSTS500011: {problem}")


def token_body(held: list[Identity], tokens: Tokens, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a token of one of the ``held`` identities as the service does: all numbers as text.

    Raises :class:`TokenError` without an audience, or when there is not exactly one such identity.
    """
    audience = query.get("resource", "")
    if not audience:
        raise TokenError("invalid_request", "Required query variable 'resource' is missing")
    check_audience(audience)
    identity = _chosen(held, query)
    token = tokens.issue(identity, audience)
    return {
        "access_token": token.text,
        "client_id": identity.client_id,
        "expires_in": str(int(token.expires_on - tokens.now())),
        "expires_on": str(token.expires_on),
        "ext_expires_in": str(token.expires_on - token.not_before),
        "not_before": str(token.not_before),
        "resource": audience,
        "token_type": "Bearer",
    }


def _chosen(held: list[Identity], query: Mapping[str, str]) -> Identity:
    names: dict[str, Callable[[Identity], str]] = {
        "client_id": lambda one: one.client_id,
        "object_id": lambda one: one.principal_id,
        "msi_res_id": lambda one: one.resource_id,
        "mi_res_id": lambda one: one.resource_id,
    }
    for name, value_of in names.items():
        if name in query:
            held = [one for one in held if value_of(one).lower() == query[name].lower()]
    if not held:
        raise TokenError("invalid_request", "Identity not found")
    if len(held) > 1:
        raise TokenError(
            "invalid_request",
            "Multiple user assigned identities exist, please specify the clientId / resourceId of the "
            "identity in the token request",
        )
    return held[0]
