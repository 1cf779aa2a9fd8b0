"""A node's identity pulls from Azure's registries: by the metadata service's token, exchanged there."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from launch.remote.agent.imds import IDENTITY
from launch.remote.environment import azure_registry
from launch.remote.environment.azure_registry import identity_secret
from launch.remote.environment.image_reference import ImageError, Unreachable, parse_reference
from launch.remote.environment.image_registry import Registry
from tests.launch.remote.environment.oci_registry import OciRegistry, image, layer, member, serve
from tests.launch.remote.metadata_service import MetadataService

TOKEN = "/metadata/identity/oauth2/token"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[OciRegistry]:
    """A registry of Azure's, which is on loopback here."""
    monkeypatch.setattr(azure_registry, "_DOMAINS", ("127.0.0.1",))
    with serve(OciRegistry(scheme="Bearer", realm_path="/oauth2/token")) as made:
        yield made


@pytest.fixture
def service() -> Iterator[MetadataService]:
    made = MetadataService()
    made.instead[TOKEN] = (200, {}, {"access_token": "of-the-identity"})
    yield made
    made.close()


def test_the_identitys_token_becomes_one_that_pulls(registry: OciRegistry, service: MetadataService) -> None:
    name = registry.add("train", "1", image([layer(member("a", b"1"))]))
    service.tags = {IDENTITY: "1b4e28ba"}
    secret = identity_secret(registry.host, service.url, "http")
    assert secret == {"identitytoken": registry.identity_token}
    (asked,) = [path for _, path, _, _ in service.asked if path.startswith(TOKEN)]
    assert parse_qs(urlsplit(asked).query)["client_id"] == ["1b4e28ba"]
    (exchange,) = [body for method, _, body in registry.requests if method == "POST"]
    assert parse_qs(exchange) == {
        "grant_type": ["access_token"],
        "service": [registry.host],
        "access_token": ["of-the-identity"],
    }
    assert Registry(parse_reference(name), secret).resolve("amd64").layers


def test_no_other_registry_gets_a_token(service: MetadataService) -> None:
    for name in ("docker.io", "azurecr.io.example.com", "myazurecr.io"):
        assert identity_secret(name, service.url) is None
    assert service.asked == []


def test_nodes_without_an_identity_pull_as_anybody(registry: OciRegistry, service: MetadataService) -> None:
    assert identity_secret(registry.host, service.url, "http") is None
    assert registry.requests == []


def test_a_refused_identity_is_answered_with_the_setting(
    registry: OciRegistry, service: MetadataService
) -> None:
    service.tags = {IDENTITY: "1b4e28ba"}
    registry.refuses_identities = True
    with pytest.raises(ImageError, match=r"HTTP 401.*ranklift:containerRegistry"):
        identity_secret(registry.host, service.url, "http")


def test_a_metadata_service_that_fails_is_named(registry: OciRegistry, service: MetadataService) -> None:
    service.tags = {IDENTITY: "1b4e28ba"}
    service.instead[TOKEN] = (500, {}, {})
    with pytest.raises(ImageError, match=r"metadata service does not answer.*HTTP 500"):
        identity_secret(registry.host, service.url, "http")


class _Exchange(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"refresh_token": "of-the-registry"}')

    def log_message(self, *_words: object) -> None: ...


def test_the_exchange_trusts_the_registrys_own_ca(
    service: MetadataService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key", tmp_path / "ca.crt"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    argv += ["-subj", "/CN=ca", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key)]
    subprocess.run([*argv, "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setattr(azure_registry, "_DOMAINS", ("127.0.0.1",))
    monkeypatch.setenv("HOME", str(tmp_path))
    service.tags = {IDENTITY: "1b4e28ba"}
    with HTTPServer(("127.0.0.1", 0), _Exchange) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            host = f"127.0.0.1:{server.server_port}"
            with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
                identity_secret(host, service.url)
            folder = tmp_path / ".config/containers/certs.d" / host
            folder.mkdir(parents=True)
            certificate.rename(folder / "ca.crt")
            assert identity_secret(host, service.url) == {"identitytoken": "of-the-registry"}
        finally:
            server.shutdown()
            thread.join()
