"""A registry of Azure's before Debian's: its name, its TLS, and its tokens for what a role allows; and, by
the same server, Microsoft's public registry, which gives anybody what it has.

How an identity's token becomes one that pulls: azure.github.io/acr/AAD-OAuth.html.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tests.rehearsal.node_lab import outside_address
from tests.rehearsal.registry import Registry

__all__ = ["MICROSOFT", "AzureRegistry", "azure_registry"]

MICROSOFT = "mcr.microsoft.com"
_HTTPS = 443
_LIMIT_S = 20


@dataclass(slots=True)
class AzureRegistry:
    """The running registry."""

    host: str
    """Its login server."""
    address: str
    certificate: Path
    images: Registry
    may_pull: Callable[[str], bool]
    """Whether the identity with this access token has a role that lets it pull."""
    refresh_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    issued: dict[str, str] = field(default_factory=dict)
    """By access token: its repository."""
    asked: list[str] = field(default_factory=list)
    """Paths of all requests."""


class _Handler(BaseHTTPRequestHandler):
    served: AzureRegistry

    def do_POST(self) -> None:
        given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        fields = {name: values[0] for name, values in given.items()}
        self.served.asked.append(self.path)
        if fields.get("service") != self.served.host:
            return self._answer(400)
        if self.path == "/oauth2/exchange" and fields.get("grant_type") == "access_token":
            if self.served.may_pull(fields.get("access_token", "")):
                return self._answer(200, {"refresh_token": self.served.refresh_token})
        elif self.path == "/oauth2/token" and fields.get("refresh_token") == self.served.refresh_token:
            kind, repository, action = fields["scope"].split(":")
            assert (kind, action) == ("repository", "pull")
            token = secrets.token_urlsafe(32)
            self.served.issued[token] = repository
            return self._answer(200, {"access_token": token})
        return self._answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]})

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
        if self.headers.get("Host") == MICROSOFT:
            return self._pass_on()
        repository = "/".join(self.path.split("/")[2:-2])
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.served.issued.get(token) != repository:
            host = self.served.host
            challenge = f'Bearer realm="https://{host}/oauth2/token",service="{host}"'
            scope = f'scope="repository:{repository}:pull"'
            return self._answer(401, {}, {"WWW-Authenticate": f"{challenge},{scope}"})
        return self._pass_on()

    def _pass_on(self) -> None:
        """Answer as the registry of Debian's does."""
        images = self.served.images
        request = urllib.request.Request(f"https://{images.address}{self.path}")
        request.add_header("Accept", self.headers.get("Accept", "*/*"))
        trust = ssl.create_default_context(cafile=images.certificate)
        try:
            with urllib.request.urlopen(request, timeout=_LIMIT_S, context=trust) as answer:
                self._send(answer.status, answer.read(), {"Content-Type": answer.headers["Content-Type"]})
        except urllib.error.HTTPError as error:
            with error:
                self._send(error.code, error.read(), {})

    def _answer(
        self, status: int, body: dict[str, object] | None = None, headers: dict[str, str] | None = None
    ) -> None:
        self._send(status, json.dumps(body or {}).encode(), headers or {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None: ...


@contextmanager
def azure_registry(
    folder: Path, name: str, images: Registry, may_pull: Callable[[str], bool]
) -> Iterator[AzureRegistry]:
    """Serve ``images`` as the registry ``name`` of Azure's, on an address that rehearsed nodes reach."""
    address, host = outside_address(), f"{name}.azurecr.io"
    key, certificate = folder / "azure.key", folder / "azure.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host},DNS:{MICROSOFT}", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    made = AzureRegistry(host, address, certificate, images, may_pull)
    try:
        server = ThreadingHTTPServer((address, _HTTPS), type("Handler", (_Handler,), {"served": made}))
    except OSError as error:
        pytest.skip(f"port {_HTTPS} of {address}, which registries of Azure's have: {error.strerror}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
