"""Registries whose answers would lead the head elsewhere, or take its memory and time."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from launch.remote.environment.download import web_client
from launch.remote.environment.download.web_client import Reach, reach_of
from launch.remote.environment.image_reference import ImageError, parse_reference
from launch.remote.environment.image_registry import Registry
from tests.launch.remote.environment.download.test_web_client import sent_to
from tests.launch.remote.environment.oci_registry import Image, OciRegistry

ANN = {"username": "ann", "password": "secret"}


def client(name: str, secret: dict[str, str] | None = None) -> Registry:
    return Registry(parse_reference(name), secret)


@pytest.fixture
def service() -> Iterator[socket.socket]:
    """A service of this node that no registry is to reach."""
    with socket.create_server(("127.0.0.2", 0)) as listening:
        listening.settimeout(0.5)
        yield listening


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("secret", [None, ANN, {"identitytoken": "refresh-1"}])
def test_a_public_registry_names_no_token_service_of_this_node(
    served: OciRegistry,
    small: Image,
    service: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    secret: dict[str, str] | None,
) -> None:
    monkeypatch.setattr(
        web_client, "reach_of", lambda one: Reach.PUBLIC if one == "127.0.0.1" else reach_of(one)
    )
    name = served.add("train", "1", small)
    served.scheme, served.realm = "Bearer", f"{scheme}://storage.test:{service.getsockname()[1]}/token"
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *words, **named: resolve(
            "127.0.0.2" if host == "storage.test" else host, *words, **named
        ),
    )
    with pytest.raises(ImageError, match=f"{served.host} leads to {scheme}://storage.test:.* is not asked"):
        client(name, secret).digest()
    assert sent_to(service) == b""


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"{",
        b'{"token": 7}',
        b'{"token": "a\\r\\nX-Evil: 1"}',
        b'{"token": "' + b"x" * 100_000 + b'"}',
        b'{"token": ' + b"[" * 1_000_000,
    ],
    ids=lambda answer: answer[:20],
)
def test_a_token_service_that_sends_no_token_is_named(
    served: OciRegistry, small: Image, answer: bytes
) -> None:
    name = served.add("train", "1", small)
    served.scheme, served.token_answer = "Bearer", answer
    with pytest.raises(ImageError, match=f"token service of {served.host} sent no token"):
        client(name).digest()


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "Bearer",
        "Bearer realm=",
        'Bearer realm="file:///etc/passwd"',
        'Bearer realm="https://["',
        "Bearer " + "a" * 60_000,
        "Bearer " + 'a="' * 20_000,
        "x" * 60_000,
        'Digest realm="images"',
    ],
    ids=lambda challenge: challenge[:30],
)
def test_a_challenge_that_cannot_be_answered_is_named_within_a_second(
    served: OciRegistry, small: Image, challenge: str
) -> None:
    name = served.add("train", "1", small)
    served.scheme, served.challenge = "Bearer", challenge
    begun = time.process_time()
    with pytest.raises(ImageError, match=f"{served.host} (asks for|leads to)") as refused:
        client(name).digest()
    assert time.process_time() - begun < 1
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("size", [-1, -5, 1.5, "7", True, None, 1 << 60, [7]])
@pytest.mark.parametrize("of_layer", [True, False])
def test_a_manifest_whose_sizes_are_none_is_refused(
    served: OciRegistry, small: Image, size: object, of_layer: bool
) -> None:
    document = json.loads(small.manifest)
    (document["layers"][0] if of_layer else document["config"])["size"] = size
    bad = Image(small.blobs, json.dumps(document).encode())
    with pytest.raises(ImageError, match=r"its manifest says that sha256:.* has .* bytes"):
        client(served.add("train", "1", bad)).resolve("amd64")


@pytest.mark.parametrize(
    "manifest",
    [
        b'{"manifests": 3}',
        b'{"manifests": [3, {"platform": 3}, {"platform": {"os": "linux", "architecture": "amd64"}}]}',
        b'{"config": 3, "layers": []}',
        b'{"config": {}, "layers": {}}',
        b'{"config": {}, "layers": [3]}',
        b'{"config": ' + b'{"a":' * 100_000,
        b'{"config": {}, "layers": [' + b"{}," * 1_000_000 + b"{}]}",
        b'{"config": {}, "layers": ' + b"9" * 4_000_000 + b"}",
    ],
    ids=lambda manifest: manifest[:40],
)
def test_a_manifest_of_another_form_is_refused(served: OciRegistry, manifest: bytes) -> None:
    served.manifests["train:1"] = ("application/json", manifest)
    with pytest.raises(ImageError) as refused:
        client(f"{served.host}/train:1").resolve("amd64")
    assert len(str(refused.value)) < 400


def test_the_reason_of_a_refusal_is_cut(served: OciRegistry) -> None:
    served.reason = "x" * 50_000
    with pytest.raises(ImageError, match="does not exist at") as refused:
        client(f"{served.host}/train:2").digest()
    assert len(str(refused.value)) < 500
