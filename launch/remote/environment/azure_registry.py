"""Credentials for Azure's container registries from the nodes' identity, which needs a role there.

The metadata service gives a token of the identity, which the registry exchanges for a refresh token
(azure.github.io/acr/AAD-OAuth.html); that answers the registry's challenge as any other.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from launch.remote.agent.identity_token import SERVICE, identity_token
from launch.remote.base import timing
from launch.remote.environment.image_reference import ImageError, Unreachable
from launch.remote.environment.image_registry import tls_context

if TYPE_CHECKING:
    from launch.remote.environment.image_registry import Secret

__all__ = ["identity_secret"]

AUDIENCE = "https://containerregistry.azure.net/"
"""Of the registries alone: a token for the Resource Manager, which they take as well, could delete nodes."""
_DOMAINS = (".azurecr.io", ".azurecr.us", ".azurecr.cn")
"""Where Azure's registries are, by cloud."""
_ANSWER_BYTES = 1 << 20


def identity_secret(registry: str, service: str = SERVICE, scheme: str = "https") -> Secret | None:
    """Return the credential of the nodes' identity; None for other registries, and nodes without identity.

    Raise :class:`ImageError` when the registry refuses the identity.
    """
    if not registry.partition(":")[0].endswith(_DOMAINS):
        return None
    try:
        found = identity_token(AUDIENCE, service)
    except OSError as error:
        raise ImageError(str(error)) from None
    if found is None:
        return None
    token, _ = found
    fields = {"grant_type": "access_token", "service": registry, "access_token": token}
    url = f"{scheme}://{registry}/oauth2/exchange"
    request = urllib.request.Request(url, urllib.parse.urlencode(fields).encode())  # noqa: S310
    limit, trust = timing.REGISTRY_SILENT_S, tls_context(registry)
    try:
        with urllib.request.urlopen(request, timeout=limit, context=trust) as answer:  # noqa: S310
            document = json.loads(answer.read(_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        raise ImageError(
            f"{registry} refuses the nodes' identity (HTTP {error.code}): set ranklift:containerRegistry to "
            "the registry's id and run `fab up`, which lets it pull there; that takes some minutes"
        ) from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"{registry} does not exchange the identity's token: {error}") from None
    return {"identitytoken": str(document.get("refresh_token", ""))}
