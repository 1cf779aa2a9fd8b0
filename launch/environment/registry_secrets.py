"""Credentials for container registries, from a file on the operator's machine; they are in no record."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path

from launch.environment.environment_spec import BuildEnvironment, Environment, ImageEnvironment
from launch.errors import InputError
from launch.remote.environment.dockerfile import bases
from launch.remote.environment.image_reference import HUB, ImageError, parse_reference

__all__ = ["read_registry_secrets", "secrets_for"]

Secret = dict[str, str]
_KEY = "--registry-token"
_HUB = ("https://index.docker.io/v1/", *HUB)
"""Names under which Docker keeps what is for ``docker.io``."""
_ANYBODY = "00000000-0000-0000-0000-000000000000"
"""User name that Azure's registries take beside a token (learn.microsoft.com container-registry-
authentication, az acr login with --expose-token)."""
_REMEDY = "give a file with USER:PASSWORD or a token alone, or Docker's config.json with auths"


def read_registry_secrets(path: Path) -> Mapping[str, Secret]:
    """Return the credentials in a file, by registry: all of Docker's config.json, or one, under the empty
    name. Raise :class:`~launch.errors.InputError`, which shows nothing of the file."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not a text"
        raise InputError(_KEY, str(path), f"cannot be read: {why}", _REMEDY) from None
    if not text.startswith("{"):
        if not text or "\n" in text:
            raise InputError(_KEY, str(path), "does not have one line", _REMEDY)
        user, colon, password = text.partition(":")
        return {"": {"username": user, "password": password} if colon else _token(text)}
    try:
        document = json.loads(text)
        found = {_host(name): _entry(entry) for name, entry in document.get("auths", {}).items()}
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise InputError(_KEY, str(path), "is not Docker's config.json", _REMEDY) from None
    known = {host: entry for host, entry in found.items() if entry}
    if not known:
        elsewhere = document.get("credsStore") or ", ".join(document.get("credHelpers") or ())
        why = f"has no credentials: they are with {elsewhere}" if elsewhere else "has no credentials"
        raise InputError(_KEY, str(path), why, _REMEDY)
    return known


def secrets_for(environment: Environment | None, secrets: Mapping[str, Secret]) -> dict[str, Secret]:
    """Return the credentials that this environment's head gets: those of the registries that it names.

    Raise :class:`~launch.errors.InputError` where there is none for an image, and for a credential without
    the name of its registry where an image is built.
    """
    if not secrets:
        return {}
    if isinstance(environment, ImageEnvironment):
        host = parse_reference(environment.reference).registry
        found = secrets.get(host) or secrets.get("")
        if found is None:
            why = f"has no credentials for {host}, only for {', '.join(sorted(secrets))}"
            raise InputError(_KEY, None, why, f"`docker login {host}` adds them")
        return {host: found}
    if not isinstance(environment, BuildEnvironment):
        raise InputError(_KEY, None, "is for container images, and this job runs in none", "leave it out")
    if "" in secrets:
        remedy = "leave it out, or give Docker's config.json"
        raise InputError(_KEY, None, "does not name its registry", remedy)
    return {host: secrets[host] for host in sorted(_registries(environment)) if host in secrets}


def _registries(environment: BuildEnvironment) -> set[str]:
    """Return the registries of the images that the Dockerfile names; the head reports what cannot be read."""
    try:
        text = (environment.context / environment.dockerfile).read_text(encoding="utf-8")
        return {parse_reference(base).registry for base in bases(text.splitlines())}
    except (OSError, UnicodeDecodeError, ImageError):
        return set()


def _host(name: str) -> str:
    """Return the registry that an entry of config.json is for.

    >>> _host("https://index.docker.io/v1/"), _host("https://me.azurecr.io/v2/"), _host("localhost:5000")
    ('docker.io', 'me.azurecr.io', 'localhost:5000')
    """
    if name in _HUB:
        return "docker.io"
    return (name.partition("://")[2] or name).partition("/")[0]


def _entry(entry: Mapping[str, str]) -> Secret:
    if entry.get("identitytoken"):
        return {"identitytoken": entry["identitytoken"]}
    if entry.get("username"):
        return {"username": entry["username"], "password": entry.get("password", "")}
    if entry.get("auth"):
        user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        return {"username": user, "password": password}
    return {}


def _token(text: str) -> Secret:
    return {"username": _ANYBODY, "password": text}
