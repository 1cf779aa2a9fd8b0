"""What the tests of images have in common: a registry, and a folder that alone is on PATH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.remote.environment.oci_registry import Image, OciRegistry, image, layer, member, serve


@pytest.fixture
def served() -> Iterator[OciRegistry]:
    with serve() as registry:
        yield registry


@pytest.fixture
def small() -> Image:
    return image([layer(member("hello", b"one")), layer(member("more", bytes(300_000)), compress=bytes)])


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH: a node's programs, none at first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder
