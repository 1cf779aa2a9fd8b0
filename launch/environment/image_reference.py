"""Names of container images, in the one form that a registry is asked with."""

from __future__ import annotations

import re

from launch.errors import InputError

__all__ = ["HUB", "image_reference"]

_REFERENCE = re.compile(
    r"(?P<scheme>https?://)?(?P<name>[^@\s]+?)(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
HUB = ("index.docker.io", "registry-1.docker.io")
"""Other hosts of ``docker.io``."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?")


def image_reference(key: str, text: str) -> str:
    """Return ``REGISTRY/NAME[:TAG][@DIGEST]`` of an image as users write it; names without a registry are
    Docker Hub's, and ``latest`` stands for a missing tag, as for Docker (distribution/reference).

    >>> image_reference("image", "python:3.10"), image_reference("image", "mcr.microsoft.com/azureml/base")
    ('docker.io/library/python:3.10', 'mcr.microsoft.com/azureml/base:latest')

    ``http://`` in front, for a registry without TLS, stays. Raise :class:`~launch.errors.InputError`.
    """
    match = _REFERENCE.fullmatch(text)
    first, slash, rest = match["name"].partition("/") if match else ("", "", "")
    has_host = bool(slash) and (any(sign in first for sign in ".:") or first == "localhost")
    host, path = (first, rest) if has_host else ("docker.io", match["name"] if match else "")
    if (
        match is None
        or not _HOST.fullmatch(host)
        or (match["scheme"] and not has_host)
        or not all(map(_PART.fullmatch, path.split("/")))
    ):
        problem = "is not the name of an image"
        raise InputError(
            key, text, problem, "write it as REGISTRY/NAME:TAG, e.g. docker.io/pytorch/pytorch:2.8.0"
        )
    if host in HUB:
        host = "docker.io"
    if host == "docker.io" and "/" not in path:
        path = f"library/{path}"
    tag = match["tag"] or ("" if match["digest"] else ":latest")
    scheme = match["scheme"] if match["scheme"] == "http://" else ""
    return f"{scheme or ''}{host}/{path}{tag}{match['digest'] or ''}"
