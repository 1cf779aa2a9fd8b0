"""``/metadata/identity/oauth2/token``: tokens of a VM's own identities only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rehearsal.arm.core.subscription import Subscription
from rehearsal.imds.tokens import TENANT_ID, Identity, Tokens
from rehearsal.imds.vm_registry import RegisteredVm, identities

__all__ = ["TokenError", "token_body"]

_RESOURCES = re.compile(
    r"https://(management\.azure\.com|management\.core\.windows\.net|storage\.azure\.com|vault\.azure\.net"
    r"|[a-z0-9]{3,24}\.(blob|file|queue|table)\.core\.windows\.net)/?"
)
"""Audiences of the tokens that a rehearsed node may request."""


class TokenError(Exception):
    """A refusal, in the form that the service gives it."""

    def __init__(self, error: str, description: str) -> None:
        self.error, self.description = error, description
        super().__init__(f"{error}: {description}")

    def body(self) -> dict[str, str]:
        """Return the answer's JSON."""
        return {"error": self.error, "error_description": self.description}


def token_body(
    subscription: Subscription, tokens: Tokens, of: RegisteredVm, query: Mapping[str, str]
) -> dict[str, Any]:
    """Return a token as the service does: all numbers as text.

    Raises :class:`TokenError` without an audience, or when the VM has no such identity.
    """
    audience = query.get("resource", "")
    if not audience:
        raise TokenError("invalid_request", "Required query variable 'resource' is missing")
    if not _RESOURCES.fullmatch(audience):
        problem = f"The resource principal named {audience} was not found in the tenant named {TENANT_ID}."
        raise TokenError("invalid_resource", f"AADSTS500011: {problem}")
    identity = _chosen(identities(subscription, of), query)
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
