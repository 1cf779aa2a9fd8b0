"""A storage service on loopback, over TLS: blobs by container and name, and files of a web server; it counts
what it sends, and has the faults that tests need."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import os
import socketserver
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Fault", "Storage", "serve"]

PIECE = 1 << 18


@dataclass(frozen=True)
class Fault:
    """An answer instead of the right one; ``cut`` sends so many bytes of it and closes."""

    status: int = 503
    code: str = "ServerBusy"
    headers: tuple[tuple[str, str], ...] = ()
    cut: int | None = None
    lie: int = 0
    """Added to Content-Length."""


@dataclass
class Storage:
    """What is stored, what is refused, and what was sent."""

    blobs: dict[str, bytes | Path] = field(default_factory=dict)
    """By ``CONTAINER/NAME``: the content, or the file that has it."""
    etags: dict[str, str] = field(default_factory=dict)
    containers: set[str] = field(default_factory=set)
    """Those that exist although they are empty."""
    digests: dict[str, str] = field(default_factory=dict)
    """Content-MD5 of what was uploaded."""
    blocks: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By blob, the blocks that are not committed."""
    received: int = 0
    fault: Callable[[str, str, str], Fault | None] = lambda *_: None
    """Function of method, path and range that returns the fault of this request."""
    rate: float | None = None
    """Bytes a second that leave in all; and that come in all."""
    machine_rate: float | None = None
    """Bytes a second that come from one machine."""
    machine_of: Callable[[str], str] = lambda _path: ""
    """Function of what is uploaded that returns from which machine it comes: here all are one."""
    ranges: bool = True
    tags: bool = True
    page: int = 5000
    url: str = ""
    certificate: Path = Path()
    sent: int = 0
    gets: Counter[str] = field(default_factory=Counter)
    queries: list[str] = field(default_factory=list)
    authorizations: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _free_at: dict[str, float] = field(default_factory=dict)
    """By link, when it has room again; empty for that of storage."""

    def put(self, name: str, content: bytes | Path, digest: str = "") -> None:
        # The blob last: a list that is asked for meanwhile needs the others.
        self.digests[name] = digest
        self.etags[name] = f'"0x{hashlib.sha256(os.urandom(8)).hexdigest()[:16].upper()}"'
        self.blobs[name] = content

    def total(self) -> int:
        return sum(size_of(content) for content in self.blobs.values())

    def pass_on(self, size: int) -> None:
        """Counts bytes that are about to leave; waits until the link has room for them."""
        with self._lock:
            self.sent += size
        self.wait_for_link(size)

    def receive(self, size: int, path: str) -> None:
        """Waits until the links have room for bytes that have come."""
        self.wait_for_link(size)
        if self.machine_rate is not None:
            self._wait(size, self.machine_rate, f"from {self.machine_of(path)}")

    def wait_for_link(self, size: int) -> None:
        """Waits until the storage's link has room for so many bytes."""
        if self.rate is not None:
            self._wait(size, self.rate, "")

    def _wait(self, size: int, rate: float, link: str) -> None:
        with self._lock:
            now = time.monotonic()
            self._free_at[link] = max(now, self._free_at.get(link, 0.0)) + size / rate
            wait = self._free_at[link] - now
        time.sleep(max(0.0, wait))


def size_of(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        storage = self.server.storage
        address = urlsplit(self.path)
        path, query = unquote(address.path).lstrip("/"), parse_qs(address.query)
        data = self._receive(path, int(self.headers["Content-Length"]))
        storage.queries.append(address.query)
        fault = storage.fault(self.command, path, address.query)
        digest = base64.b64encode(hashlib.md5(data).digest()).decode()
        what = query.get("comp", [""])[0]
        if fault is not None:
            self._head(fault.status, 0, [("x-ms-error-code", fault.code), *fault.headers])
        elif what != "blocklist" and self.headers.get("Content-MD5") != digest:
            self._head(400, 0, [("x-ms-error-code", "Md5Mismatch")])
        else:
            storage.received += len(data)
            if what == "block":
                storage.blocks.setdefault(path, {})[query["blockid"][0]] = data
            elif what == "blocklist":
                names = [one.text or "" for one in ElementTree.fromstring(data)]
                held = storage.blocks.pop(path)
                content = b"".join(held[name] for name in names)
                storage.put(path, content, self.headers["x-ms-blob-content-md5"] or "")
            else:
                storage.put(path, data, digest)
            self._head(201, 0, [])

    def _receive(self, path: str, size: int) -> bytes:
        """Takes what a client sends no faster than the links pass it on."""
        storage, pieces = self.server.storage, []
        while piece := self.rfile.read(min(PIECE, size)):
            pieces.append(piece)
            size -= len(piece)
            storage.receive(len(piece), path)
        return b"".join(pieces)

    def _answer(self) -> None:
        storage = self.server.storage
        address = urlsplit(self.path)
        path, query = unquote(address.path).lstrip("/"), parse_qs(address.query)
        asked = self.headers.get("Range", "")
        storage.queries.append(address.query)
        storage.authorizations.add(self.headers.get("Authorization", ""))
        fault = storage.fault(self.command, path, asked)
        if fault is not None and fault.cut is None and not fault.lie:
            self._head(fault.status, 0, [("x-ms-error-code", fault.code), *fault.headers])
        elif query.get("comp") == ["list"]:
            self._list(path, query)
        elif query.get("comp") == ["blocklist"]:
            blocks = "".join(f"<Block><Name>{name}</Name></Block>" for name in storage.blocks.get(path, ()))
            data = f"<BlockList><UncommittedBlocks>{blocks}</UncommittedBlocks></BlockList>".encode()
            self._head(200 if blocks else 404, len(data), [])
            self.wfile.write(data)
        elif path not in storage.blobs:
            code = "BlobNotFound" if self._has_container(path) else "ContainerNotFound"
            self._head(404, 0, [("x-ms-error-code", code)])
        elif self.headers.get("If-Match", storage.etags[path]) != storage.etags[path]:
            self._head(412, 0, [("x-ms-error-code", "ConditionNotMet")])
        else:
            self._content(path, asked, fault)

    def _has_container(self, path: str) -> bool:
        container = path.partition("/")[0]
        storage = self.server.storage
        return container in storage.containers or any(
            name.startswith(f"{container}/") for name in [*storage.blobs]
        )

    def _list(self, container: str, query: dict[str, list[str]]) -> None:
        storage = self.server.storage
        if not self._has_container(container):
            self._head(404, 0, [("x-ms-error-code", "ContainerNotFound")])
            return
        prefix, after = query.get("prefix", [""])[0], query.get("marker", [""])[0]
        names = sorted(
            name.partition("/")[2] for name in [*storage.blobs] if name.startswith(f"{container}/")
        )
        found = [name for name in names if name.startswith(prefix) and name > after]
        page, more = found[: storage.page], found[storage.page :]
        blobs = "".join(
            f"<Blob>{_name(name)}<Properties><Etag>{storage.etags[f'{container}/{name}'].strip(chr(34))}</Etag>"
            f"<Content-Length>{size_of(storage.blobs[f'{container}/{name}'])}</Content-Length>"
            f"<Content-MD5>{storage.digests.get(f'{container}/{name}', '')}</Content-MD5></Properties></Blob>"
            for name in page
        )
        marker = f"<NextMarker>{escape(page[-1])}</NextMarker>" if more else "<NextMarker />"
        data = f"<EnumerationResults><Blobs>{blobs}</Blobs>{marker}</EnumerationResults>".encode()
        self._head(200, len(data), [("Content-Type", "application/xml")])
        self.wfile.write(data)

    def _content(self, path: str, asked: str, fault: Fault | None) -> None:
        storage = self.server.storage
        content = storage.blobs[path]
        whole = size_of(content)
        start, size, status = 0, whole, 200
        headers = [("ETag", storage.etags[path])] if storage.tags else []
        if asked and storage.ranges:
            first, _, last = asked.partition("=")[2].partition("-")
            start, status = int(first), 206
            size = min(int(last), whole - 1) - start + 1
            if start >= whole:
                self._head(416, 0, [*headers, ("Content-Range", f"bytes */{whole}")])
                return
            headers.append(("Content-Range", f"bytes {start}-{start + size - 1}/{whole}"))
        self._head(status, size + (fault.lie if fault else 0), headers)
        if self.command == "HEAD":
            return
        storage.gets[path] += 1
        left = size if fault is None or fault.cut is None else fault.cut
        if isinstance(content, bytes):
            pieces: Iterator[bytes] = (
                content[at : at + min(PIECE, start + left - at)] for at in range(start, start + left, PIECE)
            )
        else:
            pieces = _read(content, start, left)
        for piece in pieces:
            storage.pass_on(len(piece))
            self.wfile.write(piece)
        if fault is not None:
            self.close_connection = True

    def _head(self, status: int, size: int, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _name(name: str) -> str:
    if any(ord(letter) < 32 or ord(letter) in (0xFFFE, 0xFFFF) for letter in name):
        return f'<Name Encoded="true">{quote(name)}</Name>'
    return f"<Name>{escape(name)}</Name>"


def _read(path: Path, start: int, left: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        while left:
            data = stream.read(min(PIECE, left))
            left -= len(data)
            yield data


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, storage: Storage, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.storage, self._context = storage, context

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(60)
        try:
            with self._context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        except OSError:  # the client has gone, or does not trust the certificate
            pass


@contextmanager
def serve(folder: Path) -> Iterator[Storage]:
    """Serves for a while, with a certificate in ``folder``."""
    storage = Storage(certificate=folder / "certificate.pem")
    key = folder / "key.pem"
    _make_certificate(storage.certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(storage.certificate, key)
    server = _Server(storage, context)
    storage.url = f"https://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield storage
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _make_certificate(certificate: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "storage of a test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    certificate.write_bytes(made.public_bytes(pem))
    key_file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
