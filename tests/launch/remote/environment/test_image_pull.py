"""Layers of an image that a head has pulled before: which are pulled again, and which are kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from launch.remote.environment import image_registry as module
from launch.remote.environment.build import Failed
from tests.launch.remote.environment.image_requests import install, made, request
from tests.launch.remote.environment.oci_registry import Image, OciRegistry, digest_of, image, layer, member

BASE, OWN, NEWER = (layer(member(f"etc/{name}", name.encode() * 1000)) for name in ("base", "own", "newer"))


@pytest.fixture(autouse=True)
def node(programs: Path) -> None:
    install(programs, "ch-run")


def pulled(served: OciRegistry, tmp_path: Path, tag: str, wanted: Image) -> tuple[list[str], set[str]]:
    """Make the image as a launch on a node without any does; return the blobs pulled and the files made."""
    name = served.add("train", tag, wanted)
    served.requests.clear()
    shutil.rmtree(tmp_path / "environments", ignore_errors=True)
    folder, _ = made(request(name), tmp_path)
    asked = [path.rpartition("/")[2] for _, path, _ in served.requests if "/blobs/" in path]
    return asked, {path.name for path in (folder / "root/etc").iterdir()}


def layers_of(wanted: Image) -> list[str]:
    """Digests of an image's layers."""
    return [entry["digest"] for entry in json.loads(wanted.manifest)["layers"]]


def kept(tmp_path: Path) -> set[str]:
    return {f"sha256:{path.name}" for path in (tmp_path / ".ranklift/cache/layers").iterdir()}


def test_of_an_image_that_differs_in_its_uppermost_layer_that_one_is_pulled(
    served: OciRegistry, tmp_path: Path
) -> None:
    first, second = image([BASE, OWN]), image([BASE, NEWER])
    asked, files = pulled(served, tmp_path, "1", first)
    assert set(layers_of(first)) <= set(asked)
    assert files == {"base", "own"}
    asked, files = pulled(served, tmp_path, "2", second)
    assert set(asked) & {*layers_of(first), *layers_of(second)} == {layers_of(second)[1]}
    assert files == {"base", "newer"}


def test_layers_of_the_last_image_alone_are_kept(served: OciRegistry, tmp_path: Path) -> None:
    pulled(served, tmp_path, "1", image([BASE, OWN]))
    second = image([BASE, NEWER])
    pulled(served, tmp_path, "2", second)
    assert kept(tmp_path) == set(layers_of(second))


def test_a_pull_after_one_that_broke_gets_what_is_lacking(
    served: OciRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.001)
    wanted = image([BASE, OWN])
    base, own = layers_of(wanted)
    name = served.add("train", "1", wanted)
    lost = served.blobs.pop(own)
    with pytest.raises(Failed, match="BLOB_UNKNOWN"):
        made(request(name), tmp_path)
    assert kept(tmp_path) <= {base}
    served.blobs[own] = lost
    made_before = kept(tmp_path)
    asked, files = pulled(served, tmp_path, "1", wanted)
    assert set(asked) & {base, own} == {base, own} - made_before
    assert files == {"base", "own"}


def test_a_damaged_layer_is_pulled_again(served: OciRegistry, tmp_path: Path) -> None:
    wanted = image([BASE, OWN])
    pulled(served, tmp_path, "1", wanted)
    damaged = layers_of(wanted)[0]
    file = tmp_path / ".ranklift/cache/layers" / damaged.partition(":")[2]
    file.write_bytes(bytes(file.stat().st_size))
    asked, files = pulled(served, tmp_path, "1", wanted)
    assert set(asked) & set(layers_of(wanted)) == {damaged}
    assert files == {"base", "own"}
    assert kept(tmp_path) == set(layers_of(wanted))


def test_a_layer_that_is_here_needs_no_room_on_the_disk(
    served: OciRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = image([BASE, OWN])
    pulled(served, tmp_path, "1", wanted)
    total = sum(entry["size"] for entry in json.loads(wanted.manifest)["layers"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9 * total, 0, total))
    assert pulled(served, tmp_path, "1", wanted)[1] == {"base", "own"}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b'{"os": "linux", "architecture": ' + b"[" * 100_000, "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"os": "linux", "architecture": 7}', "does not name os and architecture"),
        (b'{"os": "linux", "architecture": "' + b"x" * 100_000 + b'"}', "is for linux/x{20}, and"),
        (b'{"os": "linux", "architecture": "amd64", "config": 7}', "are not texts"),
        (b'{"os": "linux", "architecture": "amd64", "config": {"Env": "A=1"}}', "are not texts"),
        (b'{"os": "linux", "architecture": "amd64", "config": {"Env": [["A=1"]]}}', "are not texts"),
        (b'{"os": "linux", "architecture": "amd64", "config": {"Env": ["A=\\u0000"]}}', "are not texts"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_configuration_that_no_runtime_can_read_is_refused_before_a_layer_is_pulled(
    served: OciRegistry, tmp_path: Path, config: bytes, why: str
) -> None:
    good = image([BASE])
    document = json.loads(good.manifest)
    document["config"].update(size=len(config), digest=digest_of(config))
    bad = Image({**good.blobs, digest_of(config): config}, json.dumps(document).encode())
    with pytest.raises(Failed, match=why) as refused:
        pulled(served, tmp_path, "1", bad)
    assert len(str(refused.value)) < 400
    assert not any(layers_of(bad)[0] in path for _, path, _ in served.requests)
