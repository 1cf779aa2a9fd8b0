"""Pulling from a registry: platforms, credentials, breaks, contents that are not what was asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launch.remote.base import timing
from launch.remote.environment import image_registry as module
from launch.remote.environment.download.web_client import Misled, Reach
from launch.remote.environment.image_reference import ImageError, Unreachable, parse_reference
from launch.remote.environment.image_registry import ImageManifest, Registry
from tests.launch.remote.environment.oci_registry import (
    Image,
    OciRegistry,
    digest_of,
    image,
    index,
    layer,
    member,
    serve,
)

ANN = {"username": "ann", "password": "secret"}


def client(name: str, secret: dict[str, str] | None = None) -> Registry:
    return Registry(parse_reference(name), secret)


def fetch(registry: Registry, manifest: ImageManifest, folder: Path) -> list[bytes]:
    paths = {str(folder / str(number)): blob for number, blob in enumerate(manifest.layers)}
    registry.fetch(paths, lambda _: None, lambda *_: None)
    return [Path(path).read_bytes() for path in paths]


def test_a_tag_is_resolved_to_its_digest_config_and_layers(
    served: OciRegistry, small: Image, tmp_path: Path
) -> None:
    registry = client(served.add("team/train", "1", small))
    manifest = registry.resolve("amd64")
    assert registry.digest() == manifest.digest == small.digest
    assert b'"architecture": "amd64"' in registry.config(manifest)
    assert [digest_of(data) for data in fetch(registry, manifest, tmp_path)] == [
        blob.digest for blob in manifest.layers
    ]


def test_of_a_list_the_image_of_the_nodes_architecture_is_taken(served: OciRegistry, small: Image) -> None:
    other = image([layer(member("hello", b"two"))], architecture="arm64")
    both = index({"amd64": small, "arm64": other})
    registry = client(served.add("train", "1", small, other, both))
    assert registry.digest() == both.digest
    assert registry.resolve("amd64").digest == small.digest
    assert registry.resolve("arm64").digest == other.digest
    with pytest.raises(ImageError, match=r"no image for linux/riscv64.* it has amd64, arm64; build it"):
        registry.resolve("riscv64")


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_a_password_answers_either_challenge(
    served: OciRegistry, small: Image, scheme: str, tmp_path: Path
) -> None:
    name = served.add("train", "1", small)
    served.scheme = scheme
    registry = client(name, ANN)
    assert len(fetch(registry, registry.resolve("amd64"), tmp_path)) == 2


def test_an_identity_token_is_exchanged_and_renewed_when_it_expires(
    served: OciRegistry, small: Image
) -> None:
    name = served.add("train", "1", small)
    served.scheme = "Bearer"
    registry = client(name, {"identitytoken": served.identity_token})
    manifest = registry.resolve("amd64")
    served.valid_token = "token-2"
    assert registry.config(manifest)
    exchanged = [body for method, _, body in served.requests if method == "POST"]
    assert len(exchanged) == 2
    assert "scope=repository%3Atrain%3Apull" in exchanged[0]


@pytest.mark.parametrize(
    ("secret", "message"),
    [(None, "asks for credentials"), ({**ANN, "password": "no"}, "does not accept the credentials")],
)
@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_a_refused_pull_names_the_registry_and_the_remedy_and_no_secret(
    served: OciRegistry, small: Image, scheme: str, secret: dict[str, str] | None, message: str
) -> None:
    name = served.add("train", "1", small)
    served.scheme = scheme
    with pytest.raises(ImageError) as refused:
        client(name, secret).resolve("amd64")
    assert f"{served.host} {message}" in str(refused.value)
    assert f"--registry-token {served.host}=FILE" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_credentials_stay_behind_when_a_registry_redirects_to_its_storage(
    served: OciRegistry, small: Image, tmp_path: Path
) -> None:
    with serve() as storage:
        name = served.add("train", "1", small)
        storage.blobs = served.blobs
        served.scheme, served.elsewhere = "Basic", storage
        registry = client(name, ANN)
        fetch(registry, registry.resolve("amd64"), tmp_path)
        assert len(storage.requests) == 2
        assert {given for _, _, given in storage.requests} == {""}


@pytest.mark.parametrize("secret", [ANN, {"identitytoken": "refresh-1"}, None])
def test_a_challenge_of_the_storage_behind_a_registry_is_not_answered(
    served: OciRegistry, small: Image, tmp_path: Path, secret: dict[str, str] | None
) -> None:
    with serve() as storage, serve(OciRegistry(scheme="Bearer")) as thief:
        registry = client(served.add("train", "1", small), secret)
        storage.scheme, storage.realm = "Bearer", f"http://{thief.host}/token"
        served.elsewhere = storage
        with pytest.raises(ImageError, match=f"HTTP 401 from {storage.host}"):
            fetch(registry, registry.resolve("amd64"), tmp_path)
        assert {given for _, _, given in storage.requests} == {""}
        assert thief.requests == []


def test_a_password_does_not_cross_a_network_without_tls(served: OciRegistry, small: Image) -> None:
    served.add("train", "1", small)
    served.scheme = "Basic"
    reference = parse_reference(f"http://{served.host}/train:1")
    registry = Registry(replace(reference, registry=f"127.1:{served.port}"), ANN)  # loopback, by another name
    with pytest.raises(ImageError, match="asks for a password without TLS"):
        registry.resolve("amd64")
    assert {given for _, _, given in served.requests} == {""}


def test_a_broken_download_goes_on_where_it_broke(
    served: OciRegistry, small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    registry = client(served.add("train", "1", small))
    manifest = registry.resolve("amd64")
    served.break_after = 100_000
    received: list[int] = []
    path = tmp_path / "layer"
    whole: list[str] = []
    registry.fetch(
        {str(path): manifest.layers[1]},
        received.append,
        lambda path, blob: whole.append(f"{path} {blob.digest}"),
    )
    assert digest_of(path.read_bytes()) == manifest.layers[1].digest
    assert sum(received) == manifest.layers[1].bytes
    assert whole == [f"{path} {manifest.layers[1].digest}"]


def test_a_download_that_does_not_advance_is_given_up(
    served: OciRegistry, small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    registry = client(served.add("train", "1", small))
    manifest = registry.resolve("amd64")
    served.break_after = -400_000  # sends headers and nothing else
    with pytest.raises(ImageError, match="5 tries in a row brought nothing"):
        registry.fetch({str(tmp_path / "layer"): manifest.layers[1]}, lambda _: None, lambda *_: None)


def test_a_registry_that_cannot_go_on_is_named(
    served: OciRegistry, small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    registry = client(served.add("train", "1", small))
    manifest = registry.resolve("amd64")
    served.break_after, served.sends_whole_blobs = 100_000, True
    with pytest.raises(ImageError, match=f"{served.host} cannot resume; launch again"):
        fetch(registry, manifest, tmp_path)


def test_a_configuration_that_is_none_is_not_read(served: OciRegistry, small: Image) -> None:
    registry = client(served.add("train", "1", small))
    manifest = registry.resolve("amd64")
    large = replace(manifest, config=replace(manifest.config, bytes=5 << 20))
    asked = len(served.requests)
    with pytest.raises(ImageError, match="its configuration has 5242880 bytes"):
        registry.config(large)
    assert len(served.requests) == asked


def test_no_token_service_without_tls_gets_a_password() -> None:
    registry = Registry(parse_reference("registry.example.com/train:1"), ANN)
    with pytest.raises(Misled, match=r"leads to http://tokens\.example\.com, without TLS"):
        registry._authorize('Bearer realm="http://tokens.example.com/",service="registry"', Reach.PUBLIC)


def test_a_registry_that_is_busy_is_asked_again_for_a_blob(
    served: OciRegistry, small: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    registry = client(served.add("train", "1", small))
    manifest = registry.resolve("amd64")
    served.busy = [503, 429, 502, 504]
    assert [digest_of(data) for data in fetch(registry, manifest, tmp_path)] == [
        blob.digest for blob in manifest.layers
    ]
    served.busy = [429] * 20
    with pytest.raises(ImageError, match=r"limits how often .*HTTP 429.*TOOMANYREQUESTS.*--registry-token"):
        fetch(registry, manifest, tmp_path)


def test_the_pauses_before_a_blob_is_given_up_outlast_a_restart_of_the_registry() -> None:
    assert sum(module._PAUSE_S * module._LONGER**number for number in range(module._TRIES - 1)) > 10


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_too_busy_for_a_tag_is_one_that_does_not_answer(
    served: OciRegistry, small: Image, status: int
) -> None:
    registry = client(served.add("train", "1", small))
    served.busy = [status]
    with pytest.raises(Unreachable, match=f"HTTP {status}"):
        registry.digest()


def test_contents_other_than_the_digest_says_are_refused(
    served: OciRegistry, small: Image, tmp_path: Path
) -> None:
    registry = client(served.add("train", "1", small))
    manifest = registry.resolve("amd64")
    served.blobs[manifest.layers[0].digest] = bytes(len(served.blobs[manifest.layers[0].digest]))
    with pytest.raises(ImageError, match=f"the registry sent sha256:.* for {manifest.layers[0].digest}"):
        fetch(registry, manifest, tmp_path)
    served.manifests[f"train@{small.digest}"] = (small.media_type, small.manifest + b" ")
    with pytest.raises(ImageError, match=f"the registry sent sha256:.* for {small.digest}"):
        client(f"{served.host}/train@{small.digest}").resolve("amd64")


def test_an_unknown_tag_is_said_to_be_unknown(served: OciRegistry, small: Image) -> None:
    served.add("train", "1", small)
    with pytest.raises(
        ImageError, match=r"/train:2 does not exist .*MANIFEST_UNKNOWN.*check its name and tag"
    ):
        client(f"{served.host}/train:2").digest()


def test_a_server_that_is_not_a_registry_is_named(served: OciRegistry) -> None:
    served.manifests["train:1"] = ("text/html", b"<html>")
    with pytest.raises(ImageError, match="is this a container registry"):
        client(f"{served.host}/train:1").digest()
    served.manifests["train:1"] = ("application/json", b'{"schemaVersion": 1, "fsLayers": []}')
    with pytest.raises(ImageError, match="push the image in Docker's format 2 or OCI's"):
        client(f"{served.host}/train:1").resolve("amd64")


def test_a_registry_that_cannot_be_reached_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "REGISTRY_SILENT_S", 2.0)
    with serve() as gone:
        host = gone.host
    with pytest.raises(ImageError, match=f"cannot reach {host}: .*Connection refused.*NAT gateway"):
        client(f"{host}/train:1").digest()


def test_a_registry_without_tls_is_named_with_the_way_to_ask_for_it(served: OciRegistry) -> None:
    with pytest.raises(ImageError, match=f"for one without TLS write http://{served.host}/"):
        client(f"https://{served.host}/train:1").digest()


@pytest.mark.parametrize("digest", ["sha256:../../../../outside", "sha512:" + "0" * 128, 7])
@pytest.mark.parametrize("of_layer", [True, False])
def test_a_manifest_whose_digests_are_not_digests_is_refused_before_anything_is_written(
    served: OciRegistry, small: Image, digest: object, of_layer: bool
) -> None:
    document = json.loads(small.manifest)
    (document["layers"][0] if of_layer else document["config"])["digest"] = digest
    bad = Image(small.blobs, json.dumps(document).encode())
    with pytest.raises(ImageError, match=r"its manifest names .* which is not a sha256 digest"):
        client(served.add("train", "1", bad)).resolve("amd64")


def test_a_connection_that_breaks_in_a_manifest_is_reported_as_such(
    served: OciRegistry, small: Image
) -> None:
    name = served.add("train", "1", small)
    served.cut_documents = True
    with pytest.raises(Unreachable, match=f"cannot reach {served.host}: the connection ended early"):
        client(name).digest()
