"""The sign-in to Azure: the one that Pulumi's provider takes, in its order.

azure-native tries one method alone, the first that its variables name (pulumi/pulumi-azure-native,
``provider/pkg/provider/auth_azidentity.go``). azure-identity's default chain has other variables and another
order: on a VM of Azure's it prefers the machine's identity to ``az login``, and with ``ARM_CLIENT_SECRET``
Pulumi and the commands would act for two identities.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from infra.arm.errors import sign_in_failed
from launch.errors import InputError

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

__all__ = ["SCOPE", "access_token", "credential", "sign_in_method"]

SCOPE = "https://management.azure.com/.default"

_AUDIENCE = "api://AzureADTokenExchange"
_REQUEST_S = 20.0
_METHODS = {
    "ARM_USE_DEFAULT_AZURE_CREDENTIAL": "azure-identity's default chain",
    "ARM_CLIENT_CERTIFICATE_PATH": "a client certificate",
    "ARM_CLIENT_SECRET": "a client secret",
    "ARM_USE_OIDC": "an OpenID Connect token",
    "ARM_USE_MSI": "a managed identity",
}
"""Variables that choose a method, the first one that is set; without any it is ``az login``."""


def sign_in_method(environment: Mapping[str, str]) -> str | None:
    """Return the variable that chooses how to sign in; ``None`` for ``az login``.

    >>> sign_in_method({"ARM_USE_MSI": "true", "ARM_CLIENT_SECRET": "s"})
    'ARM_CLIENT_SECRET'
    """
    for name in _METHODS:
        value = environment.get(name)
        if value and (value == "true" or not name.startswith("ARM_USE_")):
            return name
    return None


def credential(environment: Mapping[str, str], **options: Any) -> TokenCredential:
    """Return the credential of the identity for which Pulumi acts; ``options`` are azure-identity's.

    Raises :class:`~launch.errors.InputError` naming a variable that is missing beside the one that chooses.
    """
    from azure import identity

    method = sign_in_method(environment)

    def needed(name: str) -> str:
        if not environment.get(name):
            problem = f"is not set, and {method} asks for a sign-in by {_METHODS[str(method)]}"
            raise InputError(name, None, problem, f"set it, or unset {method} to go by `az login`")
        return environment[name]

    tenant, client = environment.get("ARM_TENANT_ID") or None, environment.get("ARM_CLIENT_ID") or None
    if method == "ARM_USE_DEFAULT_AZURE_CREDENTIAL":
        return identity.DefaultAzureCredential(**options)
    if method == "ARM_USE_MSI":
        return identity.ManagedIdentityCredential(client_id=client, **options)
    if method is None:
        subscription = environment.get("ARM_SUBSCRIPTION_ID") or None
        return identity.AzureCliCredential(tenant_id=tenant or "", subscription=subscription)
    who = (needed("ARM_TENANT_ID"), needed("ARM_CLIENT_ID"))
    if method == "ARM_CLIENT_SECRET":
        return identity.ClientSecretCredential(*who, environment[method], **options)
    if method == "ARM_CLIENT_CERTIFICATE_PATH":
        password = environment.get("ARM_CLIENT_CERTIFICATE_PASSWORD") or None
        try:
            return identity.CertificateCredential(*who, environment[method], password=password, **options)
        except (OSError, ValueError) as error:
            remedy = "name the file of a certificate with its key"
            raise InputError(method, environment[method], f"cannot be read: {error}", remedy) from None
    return identity.ClientAssertionCredential(*who, lambda: _oidc_token(environment), **options)


def access_token(environment: Mapping[str, str], **options: Any) -> str:
    """Return a token of :func:`credential` for the management API.

    Raises :class:`~infra.arm.errors.NotSignedIn` in one line.
    """
    from azure.core.exceptions import ClientAuthenticationError

    try:
        return str(credential(environment, **options).get_token(SCOPE).token)
    except ClientAuthenticationError as error:
        raise sign_in_failed(error.message or str(error)) from None


def _oidc_token(environment: Mapping[str, str]) -> str:
    """Return the token that an OpenID Connect provider gives this process, as a pipeline has it."""
    if token := environment.get("ARM_OIDC_TOKEN"):
        return token
    if name := environment.get("ARM_OIDC_TOKEN_FILE_PATH"):
        try:
            return Path(name).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            problem = f"cannot be read: {error}"
            raise InputError("ARM_OIDC_TOKEN_FILE_PATH", name, problem, "name a file with a token") from None
    url, key = (environment.get(f"ACTIONS_ID_TOKEN_REQUEST_{part}") for part in ("URL", "TOKEN"))
    if not url or not key:
        raise InputError(
            "ARM_USE_OIDC",
            "true",
            "needs a token, and none is named",
            "set ARM_OIDC_TOKEN or ARM_OIDC_TOKEN_FILE_PATH, or both ACTIONS_ID_TOKEN_REQUEST_URL and "
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN, which GitHub's jobs with `id-token: write` have",
        )
    return _requested_token(url, key, environment.get("ARM_OIDC_AUDIENCE") or _AUDIENCE)


def _requested_token(url: str, key: str, audience: str) -> str:
    parts = urlsplit(url)
    query = urlencode([*parse_qsl(parts.query), ("audience", audience)])
    headers = {"Accept": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(urlunsplit(parts._replace(query=query)), headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_REQUEST_S) as answer:  # noqa: S310 - the pipeline's own
            return str(json.loads(answer.read())["value"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"gives no token: {error}"
        raise InputError("ACTIONS_ID_TOKEN_REQUEST_URL", url, problem, "see the pipeline's own log") from None
