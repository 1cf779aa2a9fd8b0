"""Images made by hand, and a registry on loopback that serves them, with the faults that tests need."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import tarfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
Member = tuple[tarfile.TarInfo, bytes]
INDEX = "application/vnd.oci.image.index.v1+json"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def member(name: str, data: bytes | None = None, **fields: Any) -> Member:
    """Return an entry of a layer: a file with ``data``, else what ``type`` says, a folder by default."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
    info.size, info.mode = len(data or b""), 0o755
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data or b""


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def layer(*members: Member, compress: Callable[[bytes], bytes] = gzipped) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return compress(out.getvalue())


@dataclass
class Image:
    """The documents and contents of one image, or of a list of them."""

    blobs: dict[str, bytes]
    manifest: bytes
    media_type: str = MANIFEST

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def image(layers: Sequence[bytes], *, architecture: str = "amd64", **config: Any) -> Image:
    plain = [gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data for data in layers]
    roots = {"type": "layers", "diff_ids": [digest_of(data) for data in plain]}
    document = {"architecture": architecture, "os": "linux", "config": config, "rootfs": roots}
    raw = json.dumps(document).encode()
    kind = "application/vnd.oci.image.config.v1+json"
    entry = {"mediaType": kind, "size": len(raw), "digest": digest_of(raw)}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": entry,
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "size": len(data),
                "digest": digest_of(data),
            }
            for data in layers
        ],
    }
    blobs = {digest_of(data): data for data in (raw, *layers)}
    return Image(blobs, json.dumps(manifest).encode())


def index(images: Mapping[str, Image]) -> Image:
    """Return a list of images by architecture, with the entry of a signature that is for no platform."""
    entries: list[dict[str, Any]] = [
        {
            "mediaType": MANIFEST,
            "size": len(each.manifest),
            "digest": each.digest,
            "platform": {"architecture": architecture, "os": "linux"},
        }
        for architecture, each in images.items()
    ]
    unknown = {"architecture": "unknown", "os": "unknown"}
    entries.insert(0, {"mediaType": MANIFEST, "size": 2, "digest": digest_of(b"{}"), "platform": unknown})
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    return Image({}, json.dumps(document).encode(), INDEX)


@dataclass
class OciRegistry:
    """What a registry serves, and what it was asked."""

    port: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """By ``NAME:TAG`` or ``NAME@DIGEST``."""
    scheme: str = ""
    """What it demands: nothing, ``Basic`` or ``Bearer``."""
    user: tuple[str, str] = ("ann", "secret")
    identity_token: str = "refresh-1"
    realm_path: str = "/token"
    realm: str = ""
    """Address of the token service, if it is another one."""
    challenge: str | None = None
    """The challenge itself, where it is to be another one."""
    token_answer: bytes = b""
    """What the token service answers instead."""
    reason: str = ""
    """Message of errors, where it is to be another one."""
    valid_token: str = "token-1"
    refuses_identities: bool = False
    break_after: int = 0
    """Bytes of a blob after which the connection breaks; 0 for never."""
    busy: list[int] = field(default_factory=list)
    """Statuses with which it refuses the next requests of manifests and blobs."""
    sends_whole_blobs: bool = False
    """Whether it does not know ranges."""
    cut_documents: bool = False
    """Whether the connection breaks in all other answers."""
    elsewhere: OciRegistry | None = None
    """A storage to which blobs are redirected."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Authorization."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, name: str, tag: str, *images: Image) -> str:
        """Take in images, the last of them under the tag; return its name for `--image`."""
        for each in images:
            self.blobs.update(each.blobs)
            self.manifests[f"{name}@{each.digest}"] = (each.media_type, each.manifest)
        self.manifests[f"{name}:{tag}"] = (images[-1].media_type, images[-1].manifest)
        return f"{self.host}/{name}:{tag}"


@contextlib.contextmanager
def serve(registry: OciRegistry | None = None) -> Iterator[OciRegistry]:
    """Serve a registry on a port of loopback."""
    registry = registry or OciRegistry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"served": registry}))
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: OciRegistry
    protocol_version = "HTTP/1.1"

    def log_message(self, *words: Any) -> None: ...

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._note()
        fields = dict(urllib.parse.parse_qsl(body))
        self.served.requests[-1] = ("POST", self.path, body)
        is_known = fields.get("refresh_token") == self.served.identity_token
        if self.path == "/oauth2/exchange" and not self.served.refuses_identities:
            self._json(200, {"refresh_token": self.served.identity_token})
        elif fields.get("grant_type") == "refresh_token" and is_known:
            self._json(200, {"access_token": self.served.valid_token})
        else:
            self._error(401, "UNAUTHORIZED", "the token is unknown")

    def do_GET(self) -> None:
        self._note()
        registry, path = self.served, urllib.parse.urlsplit(self.path).path
        given = self.headers.get("Authorization", "")
        basic = "Basic " + base64.b64encode(":".join(registry.user).encode()).decode()
        if path == registry.realm_path and registry.token_answer:
            self._send(200, registry.token_answer)
            return
        if path == registry.realm_path:
            ok = given in ("", basic) if registry.scheme == "Bearer" else False
            self._json(200, {"token": registry.valid_token if given else "anonymous"}) if ok else self._error(
                401, "UNAUTHORIZED", "wrong password"
            )
            return
        expected = {"Basic": basic, "Bearer": f"Bearer {registry.valid_token}"}.get(registry.scheme, given)
        if given != expected:
            realm = registry.realm or f"http://{registry.host}{registry.realm_path}"
            bearer = f'Bearer realm="{realm}",service="registry"'
            challenge = 'Basic realm="images"' if registry.scheme == "Basic" else bearer
            challenge = challenge if registry.challenge is None else registry.challenge
            self._error(401, "UNAUTHORIZED", "authentication required", ("WWW-Authenticate", challenge))
            return
        name, _, wanted = path[len("/v2/") :].rpartition("/")
        name, _, kind = name.rpartition("/")
        if registry.busy:
            self._error(registry.busy.pop(0), "TOOMANYREQUESTS", "try later")
        elif kind == "manifests":
            key = f"{name}@{wanted}" if wanted.startswith("sha256:") else f"{name}:{wanted}"
            if key not in registry.manifests:
                self._error(404, "MANIFEST_UNKNOWN", "manifest unknown")
                return
            media_type, data = registry.manifests[key]
            self._send(200, data, ("Content-Type", media_type))
        elif registry.elsewhere is not None:
            self._send(307, b"", ("Location", f"http://{registry.elsewhere.host}{self.path}"))
        elif wanted in registry.blobs:
            self._blob(registry.blobs[wanted])
        else:
            self._error(404, "BLOB_UNKNOWN", "blob unknown to registry")

    def _blob(self, data: bytes) -> None:
        wanted = "bytes=0-" if self.served.sends_whole_blobs else self.headers.get("Range", "bytes=0-")
        start = int(wanted[len("bytes=") : -1])
        rest = data[start:]
        cut = self.served.break_after
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[:cut] if cut else rest)
        self.close_connection = bool(cut)

    def _note(self) -> None:
        self.served.requests.append((self.command, self.path, self.headers.get("Authorization", "")))

    def _json(self, status: int, document: object) -> None:
        self._send(status, json.dumps(document).encode())

    def _error(self, status: int, code: str, message: str, *headers: tuple[str, str]) -> None:
        error = {"code": code, "message": self.served.reason or message}
        self._send(status, json.dumps({"errors": [error]}).encode(), *headers)

    def _send(self, status: int, data: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if self.served.cut_documents else data)
        self.close_connection = self.served.cut_documents or self.close_connection


def push(image_pushed: Image, url: str, name: str, tag: str) -> None:
    """Push an image to a real registry at ``url`` (OCI distribution specification 1.1, push)."""
    for digest, data in image_pushed.blobs.items():
        begun = urllib.request.Request(f"{url}/v2/{name}/blobs/uploads/", data=b"", method="POST")
        with urllib.request.urlopen(begun) as answer:
            place = urllib.parse.urljoin(url, answer.headers["Location"])
        mark = "&" if "?" in place else "?"
        target = f"{place}{mark}digest={digest}"
        kind = {"Content-Type": "application/octet-stream"}
        urllib.request.urlopen(urllib.request.Request(target, data, kind, method="PUT")).close()
    target = f"{url}/v2/{name}/manifests/{tag}"
    kind = {"Content-Type": image_pushed.media_type}
    urllib.request.urlopen(urllib.request.Request(target, image_pushed.manifest, kind, method="PUT")).close()
