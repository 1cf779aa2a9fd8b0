"""A package index and image registry of a bench's own, which counts what is taken from it.

Its packages are made for it: random bytes, which no compression makes smaller, and modules to compile.
It listens at an address of this machine that rehearsed nodes reach through their network's NAT gateway.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import random
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rehearsal.vms.nat_gateway import own_addresses

__all__ = ["PROJECTS", "PackageIndex", "package_index"]

PROJECTS = tuple(f"part{number:02}" for number in range(12))
_BYTES, _MODULES = 9_000_000, 40
"""Of each package: random bytes, and modules of Python."""
_VERSION = "1.0"
_IMAGE = "tiny"
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(slots=True)
class PackageIndex:
    """A running index: what it has by path, and the bytes that it has sent."""

    address: str
    answers: dict[str, tuple[str, bytes]] = field(repr=False)
    sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def url(self) -> str:
        """Address of the index for pip and uv."""
        return f"http://{self.address}/simple"

    @property
    def image(self) -> str:
        """Name of an image with nothing but ``/bin/sh``."""
        return f"http://{self.address}/{_IMAGE}:1"

    def taken(self) -> int:
        """Bytes sent since the last call."""
        with self.lock:
            sent, self.sent = self.sent, 0
        return sent


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    index: PackageIndex

    def do_GET(self) -> None:
        """Send what the index has at the path."""
        kind, body = self.index.answers.get(self.path.rstrip("/"), ("", b""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
            with self.index.lock:
                self.index.sent += len(body)

    do_HEAD = do_GET

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


@contextmanager
def package_index(uv: Path) -> Iterator[PackageIndex]:
    """Serve :data:`PROJECTS`, the program ``uv`` at ``/uv`` and a small image; it is gone afterwards."""

    class Handler(_Handler):
        pass

    host = own_addresses()[0]
    with _Server((host, 0), Handler) as server:
        address = f"{host}:{server.server_address[1]}"
        answers = {"/uv": ("application/octet-stream", uv.read_bytes()), **_image()}
        for number, project in enumerate(PROJECTS):
            answers |= _project(project, number)
        Handler.index = index = PackageIndex(address, answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield index
        finally:
            server.shutdown()


def _project(name: str, seed: int) -> dict[str, tuple[str, bytes]]:
    """Return a project's page, its wheel and the wheel's metadata (PEP 503, PEP 658), by path."""
    source = random.Random(seed)  # noqa: S311  (no secret: the same files in every run)
    about = f"{name}-{_VERSION}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {_VERSION}\n".encode()
    files = {f"{name}/data.bin": source.randbytes(_BYTES)}
    for number in range(_MODULES):
        functions = (f"def function{line}(value):\n    return value + {line}\n" for line in range(60))
        files[f"{name}/module{number}.py"] = "\n".join(functions).encode()
    files[f"{name}/__init__.py"] = b""
    files[f"{about}/METADATA"] = metadata
    files[f"{about}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    lines = [f"{path},sha256={_urlsafe(data)},{len(data)}" for path, data in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), data)
    wheel, file = packed.getvalue(), f"{name}-{_VERSION}-py3-none-any.whl"
    known = f'data-core-metadata="sha256={hashlib.sha256(metadata).hexdigest()}"'
    link = f'<a href="/files/{file}#sha256={hashlib.sha256(wheel).hexdigest()}" {known}>{file}</a>'
    page = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()
    return {
        f"/simple/{name}": ("text/html", page),
        f"/files/{file}": ("application/octet-stream", wheel),
        f"/files/{file}.metadata": ("text/plain", metadata),
    }


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _image() -> dict[str, tuple[str, bytes]]:
    """Return an image of one layer with this machine's ``sh``, by the paths of a registry."""
    listed = subprocess.run(["ldd", "/bin/sh"], check=True, capture_output=True, text=True).stdout.split()
    programs = ["/bin/sh", *(word for word in listed if word.startswith("/") and not word.endswith(":"))]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("bin", "dev", "etc", "home", "lib", "lib64", "proc", "root", "sys", "tmp", "usr", "var"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        contents = {path: Path(path).read_bytes() for path in programs}
        for path, data in {**contents, "/etc/passwd": b"", "/etc/group": b""}.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    layer = packed.getvalue()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    blobs = {
        "application/vnd.docker.container.image.v1+json": config,
        "application/vnd.docker.image.rootfs.diff.tar.gzip": gzip.compress(layer, 1, mtime=0),
    }
    made, packed_layer = (
        {"mediaType": kind, "size": len(data), "digest": _digest(data)} for kind, data in blobs.items()
    )
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": _MANIFEST, "config": made, "layers": [packed_layer]}
    ).encode()
    base = f"/v2/{_IMAGE}"
    return {
        "/v2": ("application/json", b"{}"),
        **{f"{base}/manifests/{name}": (_MANIFEST, manifest) for name in ("1", _digest(manifest))},
        **{f"{base}/blobs/{_digest(data)}": (kind, data) for kind, data in blobs.items()},
    }


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
