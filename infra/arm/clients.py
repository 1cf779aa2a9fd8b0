"""Clients of Azure's management API, or of the rehearsal's.

The Azure SDKs take half a second to import, so they are imported when a client is asked for.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from infra.arm.types import REMOVABLE, api_version, resource_id
from launch.errors import InputError

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient
    from azure.mgmt.resource.resources import ResourceManagementClient

__all__ = [
    "CLOUD",
    "ENDPOINT",
    "TOKEN_FILE",
    "Clients",
    "clients",
    "endpoint",
    "rehearsal_token",
    "remove",
    "resource_client",
]

ENDPOINT = "RANKLIFT_ARM_ENDPOINT"
"""Environment variable with the address of a rehearsal's ARM endpoint."""

TOKEN_FILE = "RANKLIFT_ARM_TOKEN_FILE"  # noqa: S105 - a variable's name
"""Environment variable with the file that has that endpoint's token: the rehearsal's record."""

_PROVIDERS = "PULUMI_DEBUG_PROVIDERS"
"""Environment variable by which Pulumi's engine finds the rehearsal's provider."""

CLOUD = "ARM_ENVIRONMENT"
"""Environment variable by which Pulumi's provider takes another cloud; its setting is ``environment``."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What the commands ask Azure with."""

    compute: ComputeManagementClient
    network: NetworkManagementClient


def endpoint(environment: Mapping[str, str]) -> str | None:
    """The rehearsal's ARM endpoint, or ``None`` when the commands are to talk to Azure.

    What it answers is believed, and requests to it carry :func:`rehearsal_token`: only this machine may be
    asked.

    >>> endpoint({"RANKLIFT_ARM_ENDPOINT": "http://127.0.0.1:8443"})
    'http://127.0.0.1:8443'

    Raises :class:`~launch.errors.InputError` for any other address than plain http on loopback, and without
    one for another cloud than the public one.
    """
    url = environment.get(ENDPOINT)
    if not url:
        if environment.get(CLOUD):
            from infra.config.readers import public_only

            public_only(CLOUD, environment[CLOUD])
        return None
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port  # a port that is none raises ValueError
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback or parts.scheme != "http" or parts.username is not None:
        raise InputError(
            ENDPOINT,
            url,
            "is no plain http address of this machine",
            "unset it, or take what fab rehearsal.env says",
        )
    return url.rstrip("/")


def rehearsal_token(environment: Mapping[str, str]) -> str:
    """Return the token that the rehearsal's endpoint asks for.

    It is read from a file that its owner alone can read; a variable would show it wherever variables are.
    Raises :class:`~launch.errors.InputError` when none is named or it has none, and when the variables are of
    another rehearsal than it: a port that one has left is anybody's, who would be given the nodes' keys.
    """
    remedy = 'take what fab rehearsal.env says: eval "$(fab rehearsal.env)"'
    name = environment.get(TOKEN_FILE)
    if not name:
        raise InputError(TOKEN_FILE, None, f"is not set, and {ENDPOINT} is", remedy)
    try:
        record = json.loads(Path(name).read_text())
        token, address = record["token"], f"http://127.0.0.1:{record['arm_port']}"
        provider = f"azure-native:{record['provider_port']}"
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        problem = f"has no token of a rehearsal ({error}); one that was stopped took it along"
        raise InputError(TOKEN_FILE, name, problem, remedy) from None
    for variable, now in ((ENDPOINT, address), (_PROVIDERS, provider)):
        given = environment.get(variable, now)
        if now not in given.split(","):
            raise InputError(variable, given, f"is that of an earlier rehearsal, this one's is {now}", remedy)
    return str(token)


def clients(subscription_id: str, environment: Mapping[str, str] | None = None) -> Clients:
    """Clients for one subscription: of the rehearsal when ``RANKLIFT_ARM_ENDPOINT`` is set, else of Azure.

    Azure's are signed in by ``azure-identity``'s default chain: environment, managed identity, ``az login``.
    """
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient

    credential, options = _access(os.environ if environment is None else environment)
    return Clients(
        compute=ComputeManagementClient(credential, subscription_id, **options),
        network=NetworkManagementClient(credential, subscription_id, **options),
    )


def resource_client(
    subscription_id: str, environment: Mapping[str, str] | None = None
) -> ResourceManagementClient:
    """The client that asks after and removes resources of any kind; it asks whom :func:`clients` asks."""
    from azure.mgmt.resource.resources import ResourceManagementClient

    credential, options = _access(os.environ if environment is None else environment)
    return ResourceManagementClient(credential, subscription_id, **options)


def remove(
    resources: ResourceManagementClient, subscription: str, kind: str, inputs: Mapping[str, Any]
) -> None:
    """Removes the resource of one of the :data:`REMOVABLE` kinds that Pulumi's ``inputs`` name.

    Returns when Azure has done it, or has no such thing. Raises ``azure.core.exceptions.AzureError``.
    """
    from azure.core.exceptions import ResourceNotFoundError

    identifier = resource_id(subscription, kind, inputs)
    try:
        resources.resources.begin_delete_by_id(
            identifier, api_version=api_version(REMOVABLE[kind].azure)
        ).result()
    except ResourceNotFoundError:
        return  # some kinds answer so, others as if it had been there


def _access(environment: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    url = endpoint(environment)
    if url:
        return _of_rehearsal(url, rehearsal_token(environment))
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(), {}


def _of_rehearsal(url: str, token: str) -> tuple[Any, dict[str, Any]]:
    from azure.core.credentials import AccessToken
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    class Nobody:
        """The SDKs insist on a credential; with a policy of our own nobody asks it for a token."""

        def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
            raise AssertionError(f"a token for {scopes} was asked for in a rehearsal")

    class Bearer(SansIOHTTPPolicy[Any, Any]):
        """The SDKs' own policy refuses to send a token over plain HTTP, which does not leave this machine."""

        def on_request(self, request: Any) -> None:
            request.http_request.headers["Authorization"] = f"Bearer {token}"

    # A rehearsal that refuses the connection has ended: no retry brings it back.
    return Nobody(), {"base_url": url, "authentication_policy": Bearer(), "retry_connect": 0}
