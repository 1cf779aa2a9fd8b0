"""A client of container registries: what a tag names, and its contents, verified by digest.

It follows the OCI distribution specification 1.1 (pull) with the tokens of distribution.github.io/
distribution/spec/auth. A credential goes to the registry and to the token service that it names, by TLS or on
loopback; when a registry redirects to its storage, the credential stays behind. Where a registry may lead is
decided by :mod:`launch.remote.environment.download.web_client`.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import platform
import re
import socket
import ssl
import threading
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launch.remote.base import timing
from launch.remote.environment.download.web_client import Misled, Reach, Refusal, WebClient, load_object
from launch.remote.environment.image_reference import ImageError, Reference, Unreachable, is_digest

__all__ = ["Blob", "ImageManifest", "Registry", "architecture", "tls_context"]

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))
_DOCUMENT_BYTES = 4 << 20
"""Size to which registries accept manifests (OCI distribution specification 1.1)."""
_MOST_LAYERS = 1000
"""Docker's images have 127 at most."""
_LARGEST_LAYER = 1 << 50
_LONGEST_CHALLENGE, _LONGEST_TOKEN, _LONGEST_REASON = 4096, 1 << 16, 200
_TOKEN = re.compile(r"[!-~]+")
_CHUNK = 1 << 18
_AT_ONCE = 4
_TRIES = 5
"""Connections without a new byte after which a blob is given up."""
_PAUSE_S, _LONGER = 0.2, 4
"""Seconds before the second try, and how many times longer each later one waits: 17 s in all."""
_BUSY = (429, 500, 502, 503, 504)
"""Answers of a registry that may succeed in a moment."""
_CERTIFICATES = ("/etc/docker/certs.d", "/etc/containers/certs.d", "~/.config/containers/certs.d")
"""Folders with a registry's own CA in ``HOST:PORT/*.crt`` (docs.docker.com/engine/security/certificates,
containers-certs.d(5))."""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

if TYPE_CHECKING:
    Secret = Mapping[str, str]
    """``username`` and ``password``, or ``identitytoken``: an entry of Docker's config.json, decoded."""


@dataclass(frozen=True)
class Blob:
    """A content of an image."""

    digest: str
    bytes: int


@dataclass(frozen=True)
class ImageManifest:
    """An image for one platform."""

    digest: str
    config: Blob
    layers: tuple[Blob, ...]


def architecture() -> str:
    """Return this machine's architecture as images name it."""
    return _MACHINES.get(platform.machine(), platform.machine())


def tls_context(registry: str) -> ssl.SSLContext:
    """Return what a registry's certificate is checked by: the system's CAs, and those given for it alone.

    Raise :class:`ImageError` when one of these cannot be read.
    """
    context = ssl.create_default_context()
    for top in _CERTIFICATES:
        folder = os.path.join(os.path.expanduser(top), registry)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.endswith(".crt"):
                try:
                    context.load_verify_locations(os.path.join(folder, name))
                except OSError as error:
                    raise ImageError(f"{folder}/{name} is not a certificate: {error}") from None
    return context


class Registry:
    """One repository of a registry, called with ``secret`` if it asks for one."""

    def __init__(self, reference: Reference, secret: Secret | None = None) -> None:
        """Raise :class:`ImageError` when a certificate of the registry cannot be read."""
        self.reference, self._secret = reference, secret
        self._authorization = ""
        self._lock = threading.Lock()
        self._client = WebClient(reference.base, tls_context(reference.registry), timing.REGISTRY_SILENT_S)

    @property
    def has_secret(self) -> bool:
        """Whether there is a credential for the registry."""
        return bool(self._secret)

    def digest(self) -> str:
        """Return the digest of what the reference names now. Raise :class:`ImageError`."""
        return self._manifest(self.reference.wanted)[0]

    def resolve(self, wanted_architecture: str) -> ImageManifest:
        """Return the image of this architecture that the tag or digest names. Raise :class:`ImageError`."""
        digest, document = self._manifest(self.reference.wanted)
        if document.get("mediaType") in _INDEXES or "manifests" in document:
            digest, document = self._manifest(self._choose(document.get("manifests"), wanted_architecture))
        entries = document.get("layers")
        if not isinstance(entries, list) or not isinstance(document.get("config"), dict):
            raise ImageError(
                f"{self.reference}: its manifest has no config and layers: push the image in Docker's "
                "format 2 or OCI's"
            )
        if len(entries) > _MOST_LAYERS:
            raise ImageError(f"{self.reference}: its manifest has {len(entries)} layers, over {_MOST_LAYERS}")
        config, *layers = (self._blob(entry) for entry in (document["config"], *entries))
        return ImageManifest(digest, config, tuple(layers))

    def _blob(self, entry: Any) -> Blob:
        """Return a content of a manifest, whose digest becomes a path here. Raise :class:`ImageError`."""
        digest, size = (entry.get("digest"), entry.get("size")) if isinstance(entry, dict) else (None, None)
        if not isinstance(digest, str) or not is_digest(digest):
            name = str(digest)[:80]
            raise ImageError(f"{self.reference}: its manifest names {name!r}, which is not a sha256 digest")
        if type(size) is not int or not 0 <= size <= _LARGEST_LAYER:
            number = str(size)[:40]
            raise ImageError(f"{self.reference}: its manifest says that {digest} has {number!r} bytes")
        return Blob(digest, size)

    def config(self, manifest: ImageManifest) -> bytes:
        """Return the image's configuration document. Raise :class:`ImageError`."""
        if manifest.config.bytes > _DOCUMENT_BYTES:
            raise ImageError(f"{self.reference}: its configuration has {manifest.config.bytes} bytes")
        with self._call(f"blobs/{manifest.config.digest}") as answer:
            data = self._read(answer, manifest.config.bytes)
        _check(self.reference, manifest.config.digest, hashlib.sha256(data).hexdigest())
        return data

    def fetch(
        self,
        blobs: Mapping[str, Blob],
        on_bytes: Callable[[int], None],
        on_whole: Callable[[str, Blob], None],
    ) -> None:
        """Write each blob to the path that is its key; call ``on_whole`` with the two once it is verified.

        Raise ImageError, or OSError for a path.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            stop = threading.Event()
            waiting = [
                pool.submit(self._fetch, path, blob, on_bytes, on_whole, stop) for path, blob in blobs.items()
            ]
            try:
                for future in waiting:
                    future.result()
            finally:
                stop.set()

    def _fetch(
        self,
        path: str,
        blob: Blob,
        on_bytes: Callable[[int], None],
        on_whole: Callable[[str, Blob], None],
        stop: threading.Event,
    ) -> None:
        digest, done, failures = hashlib.sha256(), 0, 0
        with open(path, "wb") as out:
            while done < blob.bytes and not stop.is_set():
                before = done
                try:
                    for data in self._pieces(blob, done):
                        if stop.is_set():
                            return
                        out.write(data)
                        digest.update(data)
                        done += len(data)
                        on_bytes(len(data))
                except Unreachable as error:
                    failures = 1 if done > before else failures + 1
                    if failures >= _TRIES:
                        raise ImageError(f"{error}; {_TRIES} tries in a row brought nothing") from None
                    stop.wait(_PAUSE_S * _LONGER ** (failures - 1))
        if not stop.is_set():
            _check(self.reference, blob.digest, digest.hexdigest())
            on_whole(path, blob)

    def _pieces(self, blob: Blob, start: int) -> Iterator[bytes]:
        """Yield the blob's bytes from ``start`` on. Raise :class:`Unreachable` when that breaks off."""
        with self._call(f"blobs/{blob.digest}", start=start) as answer:
            if start and answer.status != http.client.PARTIAL_CONTENT:
                raise ImageError(f"{self.reference}: {self.reference.registry} cannot resume; launch again")
            left = blob.bytes - start
            while left:
                try:
                    data = answer.read(min(_CHUNK, left))
                except (OSError, http.client.HTTPException) as error:
                    raise self._unreachable(error) from None
                if not data:
                    raise self._unreachable(f"the connection ended {left} bytes early")
                left -= len(data)
                yield data

    def _choose(self, entries: Any, wanted: str) -> str:
        offered = []
        for entry in entries if isinstance(entries, list) else ():
            system = entry.get("platform") if isinstance(entry, dict) else None
            if isinstance(system, dict) and system.get("os") == "linux":
                if system.get("architecture") == wanted:
                    return self._blob(entry).digest
                offered.append(str(system.get("architecture"))[:20])
        has = ", ".join(sorted(set(offered))[:20]) or "none for linux"
        raise ImageError(
            f"{self.reference} has no image for linux/{wanted}, which these nodes are: it has {has}; "
            f"build it with --platform linux/{wanted}"
        )

    def _manifest(self, wanted: str) -> tuple[str, dict[str, Any]]:
        with self._call(f"manifests/{wanted}", accept=_ACCEPT) as answer:
            data = self._read(answer, _DOCUMENT_BYTES)
        found = "sha256:" + hashlib.sha256(data).hexdigest()
        if wanted.startswith("sha256:"):
            _check(self.reference, wanted, found.partition(":")[2])
        try:
            return found, load_object(data)
        except ValueError as error:
            why = f"the answer is not a manifest ({str(error)[:80]})"
            raise ImageError(f"{self.reference}: {why}: is this a container registry?") from None

    def _read(self, answer: Any, most: int) -> bytes:
        """Return an answer, and one byte beyond ``most`` where it has more. Raise :class:`Unreachable`."""
        try:
            data = bytes(answer.read(most + 1))
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        if answer.length and len(data) <= most:
            raise self._unreachable("the connection ended early")
        return data

    def _call(self, path: str, accept: str = "*/*", start: int = 0) -> Any:
        """Return an open answer. Raise :class:`ImageError`; a break later on is the reader's."""
        url = self.reference.base + path
        used = self._authorization
        try:
            try:
                return self._open(url, accept, start, used)
            except Refusal as refusal:
                if refusal.status != http.client.UNAUTHORIZED or not refusal.challenge:
                    raise
                with self._lock:  # one of the threads renews a token that has expired
                    if self._authorization == used:
                        self._authorization = self._authorize(refusal.challenge, refusal.reach)
                return self._open(url, accept, start, self._authorization)
        except Refusal as refusal:
            raise self._refusal(refusal) from None
        except Misled as error:
            raise ImageError(f"{self.reference}: {self.reference.registry} {error}") from None
        except urllib.error.URLError as error:
            raise self._unreachable(error.reason) from None

    def _open(self, url: str, accept: str, start: int, authorization: str) -> http.client.HTTPResponse:
        headers = {"Accept": accept, **({"Range": f"bytes={start}-"} if start else {})}
        return self._client.open(url, headers, authorization=authorization).response

    def _authorize(self, challenge: str, reach: Reach) -> str:
        """Return the header that answers a challenge, which came from a host of this ``reach``."""
        scheme, _, rest = challenge[:_LONGEST_CHALLENGE].partition(" ")
        if self._secret and self.reference.is_plain and not self.reference.is_on_loopback:
            raise ImageError(
                f"{self.reference.registry} asks for a password without TLS, which would show it to the "
                "network: give the registry a certificate"
            )
        if scheme.lower() == "basic":
            if not self._secret or "username" not in self._secret:
                raise Refusal(http.client.UNAUTHORIZED, "", b"", reach)
            return _basic(self._secret)
        fields = dict(re.findall(r'\b(\w{1,20})="([^"]*)"', rest))
        realm = fields.get("realm", "")
        if scheme.lower() != "bearer" or not realm:
            asked = scheme[:20] or "unknown"
            raise ImageError(f"{self.reference.registry} asks for {asked} authentication")
        scope = fields.get("scope") or f"repository:{self.reference.repository}:pull"
        query = {"service": fields.get("service", ""), "scope": scope}
        token = (self._secret or {}).get("identitytoken")
        body, authorization = None, ""
        if token:
            query.update(grant_type="refresh_token", refresh_token=token, client_id="ranklift")
            body = urllib.parse.urlencode(query).encode()
        else:
            realm += ("&" if "?" in realm else "?") + urllib.parse.urlencode(query)
            authorization = _basic(self._secret) if self._secret else ""
        accept = {"Accept": "application/json"}
        answer, _ = self._client.open(realm, accept, authorization=authorization, body=body, led_by=reach)
        with answer:
            data = self._read(answer, _DOCUMENT_BYTES)
        return f"Bearer {self._token(data)}"

    def _token(self, data: bytes) -> str:
        """Return the token of a token service's answer. Raise :class:`ImageError`."""
        try:
            document = load_object(data)
        except ValueError:
            document = {}
        token = document.get("token") or document.get("access_token")
        if isinstance(token, str) and len(token) <= _LONGEST_TOKEN and _TOKEN.fullmatch(token):
            return token
        raise ImageError(f"{self.reference}: the token service of {self.reference.registry} sent no token")

    def _refusal(self, refusal: Refusal) -> ImageError:
        name, registry = self.reference, self.reference.registry
        reason = _reason(refusal.body)
        found = f"{refusal}: {reason}" if reason else str(refusal)
        if refusal.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            given = "does not accept the credentials" if self._secret else "asks for credentials"
            return ImageError(
                f"{name}: {registry} {given} ({found}), or the repository does not exist: set "
                "ranklift:containerRegistry for a registry of Azure, or `docker login` here and launch with "
                f"--registry-token {registry}=FILE"
            )
        if refusal.status == http.client.NOT_FOUND:
            return ImageError(f"{name} does not exist at {registry} ({found}): check its name and tag")
        if refusal.status == http.client.TOO_MANY_REQUESTS:
            return Unreachable(
                f"{name}: {registry} limits how often an image is pulled ({found}): more often with "
                f"--registry-token {registry}=FILE, or from a registry of your own"
            )
        kind = Unreachable if refusal.status in _BUSY else ImageError
        return kind(f"{name}: {registry} answered {found}; launch again")

    def _unreachable(self, reason: object) -> Unreachable:
        registry = self.reference.registry
        if isinstance(reason, ssl.SSLError):
            remedy = (
                f"for a registry with a CA of its own put that into {_CERTIFICATES[0]}/{registry}/ca.crt on "
                f"the nodes; for one without TLS write http://{registry}/..."
            )
        else:
            remedy = (
                "is its name right, and have the nodes a way out? Their subnet needs a NAT gateway, or a "
                "private endpoint of the registry"
            )
        return Unreachable(f"{socket.gethostname()} cannot reach {registry}: {reason}: {remedy}")


def _basic(secret: Secret) -> str:
    pair = f"{secret.get('username', '')}:{secret.get('password', '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _check(reference: Reference, digest: str, found: str) -> None:
    if digest != "sha256:" + found:
        raise ImageError(f"{reference}: the registry sent sha256:{found} for {digest}; launch again")


def _reason(body: bytes) -> str:
    """Return the first error of a registry's answer, such as ``MANIFEST_UNKNOWN: manifest unknown``."""
    try:
        first = load_object(body)["errors"][0]
        return f"{first['code']}: {first.get('message', '')}"[:_LONGEST_REASON]
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
