"""Clients of Azure's management API, or of the rehearsal's.

The Azure SDKs take half a second to import, so they are imported when a client is made.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from infra.arm.sign_in import access_token, credential, sign_in_method
from infra.arm.types import REMOVABLE, api_version, resource_id
from launch.errors import InputError

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient
    from azure.mgmt.resource.resources import ResourceManagementClient
    from azure.storage.blob import BlobServiceClient

__all__ = [
    "CLOUD",
    "ENDPOINT",
    "TOKEN_FILE",
    "Clients",
    "blob_service",
    "clients",
    "endpoint",
    "rehearsal_token",
    "remove",
    "resource_client",
]

ENDPOINT = "RANKLIFT_ARM_ENDPOINT"
"""Environment variable with the address of a rehearsal's ARM endpoint."""

TOKEN_FILE = "RANKLIFT_ARM_TOKEN_FILE"  # noqa: S105 - a variable's name
"""Environment variable with the file of that endpoint's token: the rehearsal's record."""

_PROVIDERS = "PULUMI_DEBUG_PROVIDERS"
"""Environment variable by which Pulumi's engine finds the rehearsal's provider."""

CLOUD = "ARM_ENVIRONMENT"
"""Environment variable by which Pulumi's provider takes another cloud; its setting is ``environment``."""


_TOKEN_LIFE_S = 3600
_DIRECT: dict[str, Any] = {"use_env_settings": False}
"""Option of every client of a rehearsal. A proxy of the shell would see the token, and cannot reach the
rehearsal; nor is a password of ~/.netrc for it."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The SDK clients of one subscription."""

    compute: ComputeManagementClient
    network: NetworkManagementClient


def endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the rehearsal's ARM endpoint, or ``None`` for Azure itself.

    Its answers are trusted and requests to it carry :func:`rehearsal_token`, so it must be on this machine.

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
        host, _port = parts.hostname or "", parts.port  # an invalid port raises ValueError
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback or parts.scheme != "http" or parts.username is not None:
        raise InputError(
            ENDPOINT,
            url,
            "is not a plain http address of this machine",
            "unset it, or use the output of fab rehearsal.env",
        )
    return url.rstrip("/")


def rehearsal_token(environment: Mapping[str, str]) -> str:
    """Return the token for the rehearsal's endpoint: its operator's, or by a sign-in at its directory.

    The operator's is read from a file that only its owner can read; environment variables are visible to more
    processes. Raises :class:`~launch.errors.InputError` when no file is named or it has no token, and when
    the variables belong to another rehearsal: whoever took over that one's port would receive the nodes'
    keys. Raises :class:`~infra.arm.errors.NotSignedIn` when the directory refuses the sign-in.
    """
    record = _record(environment)
    options = _directory(environment, record)
    return str(record["token"]) if options is None else access_token(environment, **options)


def _directory(environment: Mapping[str, str], record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return azure-identity's options for a sign-in at the rehearsal's directory; ``None`` for the operator.

    ``ARM_TENANT_ID`` decides, so that a secret of another directory's application is not sent there.
    """
    tenant = record.get("tenant_id")
    if not tenant or environment.get("ARM_TENANT_ID") != tenant:
        return None
    if sign_in_method(environment) not in ("ARM_CLIENT_SECRET", "ARM_USE_OIDC"):
        problem = "is the rehearsal's, where one signs in by a client secret or an OpenID Connect token"
        raise InputError(
            "ARM_TENANT_ID", tenant, problem, "set ARM_CLIENT_SECRET or ARM_USE_OIDC=true, or unset it"
        )
    from azure.core.pipeline.transport._requests_basic import RequestsTransport  # typed there alone

    class ToDirectory(RequestsTransport):
        """Sends azure-identity's requests, which are https to Microsoft alone, to the rehearsal instead."""

        def send(self, request: Any, **options: Any) -> Any:
            address = f"127.0.0.1:{record['directory_port']}"
            request.url = urlunsplit(urlsplit(request.url)._replace(scheme="http", netloc=address))
            return super().send(request, **options)

    # A rehearsal that refuses the connection has ended.
    return {"transport": ToDirectory(**_DIRECT), "retry_connect": 0}


def _record(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the rehearsal's record, of the rehearsal that the variables belong to."""
    remedy = 'use the output of fab rehearsal.env: eval "$(fab rehearsal.env)"'
    name = environment.get(TOKEN_FILE)
    if not name:
        raise InputError(TOKEN_FILE, None, f"is not set, and {ENDPOINT} is", remedy)
    try:
        record = json.loads(Path(name).read_text())
        _token, address = record["token"], f"http://127.0.0.1:{record['arm_port']}"
        provider = f"azure-native:{record['provider_port']}"
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        problem = f"has no token of a rehearsal ({error}); a stopped one removes it"
        raise InputError(TOKEN_FILE, name, problem, remedy) from None
    for variable, now in ((ENDPOINT, address), (_PROVIDERS, provider)):
        given = environment.get(variable, now)
        if now not in given.split(","):
            raise InputError(variable, given, f"is that of an earlier rehearsal, this one's is {now}", remedy)
    return dict(record)


def clients(subscription_id: str, environment: Mapping[str, str] | None = None) -> Clients:
    """Return clients of the rehearsal when ``RANKLIFT_ARM_ENDPOINT`` is set, else of Azure.

    Azure's sign in as Pulumi does (:mod:`infra.arm.sign_in`).
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
    """Return the client that reads and removes resources of any type, where :func:`clients` would."""
    from azure.mgmt.resource.resources import ResourceManagementClient

    credential, options = _access(os.environ if environment is None else environment)
    return ResourceManagementClient(credential, subscription_id, **options)


def blob_service(
    account_url: str, environment: Mapping[str, str] | None = None, sas: str = "", **options: Any
) -> BlobServiceClient:
    """Return the client of a storage account, where :func:`clients` would, or by its ``sas``; ``options`` are
    the client's.

    ``account_url`` is ``https://<account>.blob.core.windows.net``, in a rehearsal too: there a port of this
    machine leads to it. Raises :class:`~launch.errors.InputError` for a rehearsal without blobs.
    """
    from azure.core.credentials import AccessToken, AzureSasCredential
    from azure.storage.blob import BlobServiceClient

    signed = AzureSasCredential(sas) if sas else None
    given = os.environ if environment is None else environment
    if not endpoint(given):
        return BlobServiceClient(account_url, credential=signed or credential(given), **options)
    record = _record(given)
    if not record.get("blob_port"):
        problem = "the rehearsal has no blobs: Azurite is not installed"
        raise InputError("storage", account_url, problem, "run make azurite, then start the rehearsal again")

    class Operator:
        """The operator's token, which this rehearsal takes until it ends."""

        def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
            return AccessToken(str(record["token"]), int(time.time()) + _TOKEN_LIFE_S)

    account = (urlsplit(account_url).hostname or "").partition(".")[0]
    url = f"https://127.0.0.1:{record['blob_port']}/{account}"
    trust = str(record["blob_certificate"])
    sign_in = _directory(given, record)
    who = Operator() if sign_in is None else credential(given, **sign_in)
    return BlobServiceClient(url, credential=signed or who, connection_verify=trust, **_DIRECT, **options)


def remove(
    resources: ResourceManagementClient, subscription: str, kind: str, inputs: Mapping[str, Any]
) -> None:
    """Remove the resource of a :data:`REMOVABLE` type that Pulumi's ``inputs`` name.

    Return when it is gone, or was not there. Raises ``azure.core.exceptions.AzureError``.
    """
    from azure.core.exceptions import ResourceNotFoundError

    identifier = resource_id(subscription, kind, inputs)
    try:
        resources.resources.begin_delete_by_id(identifier, api_version=api_version(REMOVABLE[kind])).result()
    except ResourceNotFoundError:
        return  # some types answer so, others as if it had been there


def _access(environment: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    url = endpoint(environment)
    if url:
        return _of_rehearsal(url, rehearsal_token(environment))
    return credential(environment), {}


def _of_rehearsal(url: str, token: str) -> tuple[Any, dict[str, Any]]:
    from azure.core.credentials import AccessToken
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    class Unused:
        """A credential, which the SDKs insist on; with a policy of our own they never use it."""

        def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
            raise AssertionError(f"a token for {scopes} was requested in a rehearsal")

    class Bearer(SansIOHTTPPolicy[Any, Any]):
        """A token over plain HTTP on this machine, which the SDKs' own policy refuses to send."""

        def on_request(self, request: Any) -> None:
            request.http_request.headers["Authorization"] = f"Bearer {token}"

    # A rehearsal that refuses the connection has ended: no retry brings it back.
    return Unused(), {"base_url": url, "authentication_policy": Bearer(), "retry_connect": 0, **_DIRECT}
