"""Tokens of the nodes' identity, from the node's agent, which alone may request them."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

from launch.remote.agent import imds

__all__ = ["SERVICE", "identity_token"]

SERVICE = "unix:/run/ranklift/metadata"
"""Where the agent answers the nodes' user: :mod:`launch.remote.agent.metadata_door`."""
_INSTANCE = "/metadata/instance?api-version=2021-02-01"
_TOKEN = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource={}&client_id={}"  # noqa: S105
_LIMIT_S = 10.0


def identity_token(resource: str, service: str = SERVICE) -> tuple[str, float] | None:
    """Return a token for the resource and the Unix time of its end; None on nodes without identity.

    Raise OSError when the agent or the metadata service does not answer.
    """
    instance = _ask(service, _INSTANCE)
    client = imds.identity((instance.get("compute") or {}).get("tagsList"))
    if not client:
        return None
    answer = _ask(service, _TOKEN.format(resource, urllib.parse.quote(client, safe="")))
    try:
        ends = float(answer.get("expires_on", 0))
    except (TypeError, ValueError):
        ends = 0.0
    return str(answer.get("access_token", "")), ends


def _ask(service: str, path: str) -> Any:
    try:
        status, _, body = imds.ask("GET", service, path, b"", _LIMIT_S)
        if status == imds.OK:
            return json.loads(body)
        why = f"HTTP {status}"
    except (OSError, ValueError) as error:
        why = str(error)
    raise OSError(f"the metadata service does not answer for the nodes' identity: {why}")
