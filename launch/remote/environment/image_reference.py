"""The name of a container image, read as Docker reads it, and the errors of images."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from launch.remote.environment.build import Failed

__all__ = ["HUB", "ImageError", "Reference", "Unreachable", "is_digest", "parse_reference"]

_HOST = re.compile(r"(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:)|\[[0-9A-Fa-f:]+\])(:\d+)?")
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
_HUB = "registry-1.docker.io"
"""The host that serves images of ``docker.io`` (docs.docker.com, registry of Docker Hub)."""
HUB = ("index.docker.io", _HUB)
"""Other hosts of ``docker.io``."""


class ImageError(Failed):
    """An image that cannot be had."""


class Unreachable(ImageError):
    """A registry to which the connection failed or broke, or that is too busy to answer."""


@dataclass(frozen=True)
class Reference:
    """The parts of an image's name; without a tag or digest, ``tag`` is ``latest``."""

    registry: str
    """Host and port."""
    repository: str
    tag: str
    digest: str
    is_plain: bool
    """Whether the registry is called without TLS."""

    @property
    def base(self) -> str:
        """The beginning of the URLs of this repository."""
        host = _HUB if self.registry == "docker.io" else self.registry
        return f"{'http' if self.is_plain else 'https'}://{host}/v2/{self.repository}/"

    @property
    def wanted(self) -> str:
        """What the registry is asked for: the digest, else the tag."""
        return self.digest or self.tag

    @property
    def is_on_loopback(self) -> bool:
        """Whether the registry is on the same machine, where nothing crosses a network."""
        return _LOOPBACK.fullmatch(self.registry) is not None

    @property
    def written(self) -> str:
        """The text that :func:`parse_reference` reads as this reference."""
        if self.is_plain == self.is_on_loopback:
            return str(self)
        return f"{'http' if self.is_plain else 'https'}://{self}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """Return the parts of ``[http://][REGISTRY/]NAME[:TAG][@DIGEST]``. Raise :class:`ImageError`.

    A registry is called by TLS, unless it is on loopback or the name begins with ``http://``.

    >>> str(parse_reference("python:3.11-slim")), str(parse_reference("me.azurecr.io/train"))
    ('docker.io/library/python:3.11-slim', 'me.azurecr.io/train:latest')
    >>> parse_reference("localhost:5000/train").base, parse_reference("http://10.0.0.9:5000/train").base
    ('http://localhost:5000/v2/train/', 'http://10.0.0.9:5000/v2/train/')
    """
    rest, is_plain = text, False
    for scheme in ("https://", "http://"):
        if rest.startswith(scheme):
            rest, is_plain = rest[len(scheme) :], scheme == "http://"
    rest, at, digest = rest.partition("@")
    first, slash, path = rest.partition("/")
    if slash and _HOST.fullmatch(first):
        registry = "docker.io" if first in HUB else first
    elif rest != text.partition("@")[0]:
        raise _invalid(text, f"{first!r} is not a registry, which http:// and https:// need")
    else:
        registry, path = "docker.io", rest
    repository, colon, tag = path.partition(":")
    if not _REPOSITORY.fullmatch(repository):
        raise _invalid(text, f"{repository!r} is not a name: lower-case letters, digits, . _ - and /")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(text, f"{tag!r} is not a tag")
    if at and not _DIGEST.fullmatch(digest):
        raise _invalid(text, f"{digest!r} is not a digest: sha256: and 64 hexadecimal digits")
    if registry == "docker.io" and "/" not in repository:
        repository = "library/" + repository
    reference = Reference(registry, repository, tag or ("" if at else "latest"), digest, is_plain)
    is_local = reference.is_on_loopback and not text.startswith("https://")
    return replace(reference, is_plain=True) if is_local else reference


def is_digest(text: object) -> bool:
    """Return whether a text of a registry's document is a digest that contents can be held against."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def _invalid(text: str, why: str) -> ImageError:
    return ImageError(f"image = {text}: {why}; write it as REGISTRY/NAME[:TAG][@DIGEST]")
