"""A registry of container images that rehearsed nodes reach: Debian's own, with what a test has pushed.

with registry(folder) as made:
    made.push("tools/tiny", "1", tiny_layer())
    ... made.address, as in ``ch-image pull <address>/tools/tiny:1``

It listens at an address of this machine that is not loopback, by TLS with a certificate of its own.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import ssl
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rehearsal.node_lab import free_port, outside_address

USER, PASSWORD = "reader", "not a secret: 1"
_HASH = "$2b$04$abcdefghijklmnopqrstuuW144EFoQ2w6ep2CMyiAwAGCs.H4eB7O"
"""Of the password, by bcrypt: the only kind that the registry knows."""
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_LIMIT_S = 20


@dataclass(frozen=True, slots=True)
class Registry:
    """A running registry."""

    address: str
    """Host and port, as they stand before an image's name."""
    certificate: Path
    """By which its clients recognise it."""
    log: Path
    locked: bool

    def push(self, name: str, tag: str, layer: bytes, **config: Any) -> str:
        """Push an image of one layer, an uncompressed archive; return its digest. ``config`` is Docker's."""
        packed = gzip.compress(layer, 1, mtime=0)
        whole = {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created_by": "a test"}],
        }
        parts = ((_CONFIG, json.dumps(whole).encode()), (_LAYER, packed))
        made, layers = [self._put_blob(name, kind, content) for kind, content in parts]
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": made, "layers": [layers]}
        text = json.dumps(manifest).encode()
        self.ask("PUT", f"/v2/{name}/manifests/{tag}", text, _MANIFEST)
        return _digest(text)

    def _put_blob(self, name: str, kind: str, content: bytes) -> dict[str, Any]:
        _, headers = self.ask("POST", f"/v2/{name}/blobs/uploads/")
        place = headers["Location"].removeprefix(f"https://{self.address}")
        joint = "&" if "?" in place else "?"
        self.ask("PUT", f"{place}{joint}digest={_digest(content)}", content, "application/octet-stream")
        return {"mediaType": kind, "size": len(content), "digest": _digest(content)}

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = ""
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body and headers of an answer, as the owner of the password."""
        request = urllib.request.Request(f"https://{self.address}{path}", body, method=method)
        if self.locked:
            request.add_header(
                "Authorization", "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            )
        if kind:
            request.add_header("Content-Type", kind)
        trust = ssl.create_default_context(cafile=self.certificate)
        with urllib.request.urlopen(request, timeout=_LIMIT_S, context=trust) as answer:
            return answer.read(), dict(answer.headers)


@contextmanager
def registry(folder: Path, *, locked: bool = False) -> Iterator[Registry]:
    """Run an empty registry in ``folder``; it is gone afterwards. ``locked``: for :data:`USER` alone."""
    host = outside_address()
    address = f"{host}:{free_port(host)}"
    key, certificate = folder / "registry.key", folder / "registry.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", "/CN=registry", "-addext", f"subjectAltName=IP:{host}", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    settings: dict[str, Any] = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": address, "tls": {"certificate": str(certificate), "key": str(key)}},
    }
    if locked:
        (folder / "users").write_text(f"{USER}:{_HASH}\n")
        settings["auth"] = {"htpasswd": {"realm": "registry", "path": str(folder / "users")}}
    (folder / "registry.yml").write_text(json.dumps(settings))  # which is YAML, too
    made = Registry(address, certificate, folder / "registry.log", locked)
    with made.log.open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "docker-registry", "serve", str(folder / "registry.yml")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _until_up(made, process)
        yield made
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder / "images", ignore_errors=True)


def _until_up(made: Registry, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while True:
        try:
            made.ask("GET", "/v2/")
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            assert process.poll() is None and time.monotonic() < deadline, made.log.read_text()
            time.sleep(0.05)
        else:
            return


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def tiny_layer(**files: str) -> bytes:
    """Return an archive of a root with this machine's ``bash`` and ``cat``, and ``files`` by name in it."""
    programs = ["/bin/sh", "/bin/bash", "/bin/cat"]
    listed = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True).stdout.split()
    needed = {*programs, *(word for word in listed if word.startswith("/") and not word.endswith(":"))}
    packed = io.BytesIO()
    with closing(tarfile.open(fileobj=packed, mode="w")) as tar:
        for name in ("bin", "dev", "etc", "home", "lib", "lib64", "proc", "root", "sys", "tmp", "usr", "var"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for path in sorted(needed):
            _add(tar, path, Path(path).read_bytes(), 0o755)
        for path, text in {"/etc/passwd": "", "/etc/group": "", **files}.items():
            _add(tar, path, text.encode(), 0o644)
    return packed.getvalue()


def _add(tar: tarfile.TarFile, path: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
