"""Credentials for container registries, from a file on the operator's machine; they are in no record."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from launch.environment.environment_spec import BuildEnvironment, Environment, ImageEnvironment
from launch.errors import InputError
from launch.remote.environment.dockerfile import bases
from launch.remote.environment.image_reference import HUB, ImageError, parse_reference

__all__ = ["read_registry_secrets", "secrets_for", "split_host"]

Secret = dict[str, str]
_KEY = "--registry-token"
_HUB = ("https://index.docker.io/v1/", *HUB)
"""Names under which Docker keeps what is for ``docker.io``."""
_ANYBODY = "00000000-0000-0000-0000-000000000000"
"""User name that Azure's registries take beside a token (learn.microsoft.com container-registry-
authentication, az acr login with --expose-token)."""
_REMEDY = "give a file with USER:PASSWORD or a token alone, or Docker's config.json with auths"


def split_host(given: str) -> tuple[str, str]:
    """Return the registry and the file of ``[HOST=]FILE``, the registry empty where there is none. Raise
    :class:`~launch.errors.InputError`.

    >>> split_host("me.azurecr.io=token"), split_host("index.docker.io=token"), split_host("./a=b")
    (('me.azurecr.io', 'token'), ('docker.io', 'token'), ('', './a=b'))
    """
    host, equals, file = given.partition("=")
    if not equals or "/" in host:
        return "", given
    host = _host(host)
    try:
        is_host = parse_reference(f"{host}/image").registry == host
    except ImageError:
        is_host = False
    if not (is_host and file):
        remedy = f"write HOST=FILE, as in me.azurecr.io=token; or ./{given} for a file of that name"
        raise InputError(_KEY, given, "does not begin with a registry", remedy)
    return host, file


def read_registry_secrets(path: Path, host: str = "") -> Mapping[str, Secret]:
    """Return the credentials in a file, by registry: all of Docker's config.json, or one, under the name of
    ``host``; with it, that one's alone.

    Raise :class:`~launch.errors.InputError`, which shows nothing of the file.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not a text"
        raise InputError(_KEY, str(path), f"cannot be read: {why}", _REMEDY) from None
    if not text.startswith("{"):
        if not text or "\n" in text:
            raise InputError(_KEY, str(path), "does not have one line", _REMEDY)
        user, colon, password = text.partition(":")
        return {host: {"username": user, "password": password} if colon else _token(text)}
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
    if host:
        _refuse_others(host, known)
    return {host: known[host]} if host else known


def secrets_for(
    environment: Environment | None, secrets: Mapping[str, Secret], confirm: Callable[[str], None]
) -> dict[str, Secret]:
    """Return the credentials that this environment's head gets: those of the registries that it names.

    ``confirm`` raises an error where one without the name of its registry must not go to an image's. Raise
    :class:`~launch.errors.InputError` where there is none for an image, and for one without the name of its
    registry where an image is built.
    """
    if not secrets:
        return {}
    if isinstance(environment, ImageEnvironment):
        host = parse_reference(environment.reference).registry
        if "" in secrets:
            confirm(host)
            return {host: secrets[""]}
        _refuse_others(host, secrets)
        return {host: secrets[host]}
    if not isinstance(environment, BuildEnvironment):
        raise InputError(_KEY, None, "is for container images, and this job runs in none", "leave it out")
    if "" in secrets:
        remedy = "give --registry-token HOST=FILE, or Docker's config.json"
        raise InputError(_KEY, None, "does not name its registry", remedy)
    return {host: secrets[host] for host in sorted(_registries(environment)) if host in secrets}


def _refuse_others(host: str, secrets: Mapping[str, Secret]) -> None:
    if host not in secrets:
        why = f"has no credentials for {host}, only for {', '.join(sorted(secrets))}"
        raise InputError(_KEY, None, why, f"`docker login {host}` adds them")


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
