"""Credentials for Azure's container registries from the nodes' identity, which needs a role there.

The metadata service gives a token of the identity, which the registry exchanges for a refresh token
(azure.github.io/acr/AAD-OAuth.html); that answers the registry's challenge as any other.
"""

from __future__ import annotations

import http.client
import urllib.parse
from typing import TYPE_CHECKING

from launch.remote.agent.identity_token import SERVICE, identity_token
from launch.remote.base import timing
from launch.remote.environment.download.web_client import Misled, Refusal, WebClient, load_object
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
    body = urllib.parse.urlencode(fields).encode()
    try:
        client = WebClient(url, tls_context(registry), timing.REGISTRY_SILENT_S)
        with client.open(url, {}, body=body).response as answer:
            refresh = load_object(answer.read(_ANSWER_BYTES)).get("refresh_token")
    except Refusal as refusal:
        raise ImageError(
            f"{registry} refuses the nodes' identity (HTTP {refusal.status}): set ranklift:containerRegistry "
            "to the registry's id and run `fab up`, which lets it pull there; that takes some minutes"
        ) from None
    except Misled as error:
        raise ImageError(f"{registry} {error}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unreachable(f"{registry} does not exchange the identity's token: {error}") from None
    if not isinstance(refresh, str):
        raise Unreachable(f"{registry} does not exchange the identity's token: it sent none")
    return {"identitytoken": refresh}
