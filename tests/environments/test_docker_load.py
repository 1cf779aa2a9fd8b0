"""The archive that a head writes of a registry's layers is one that Docker loads and runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.remote.environment.image import make
from tests.environments.debian_image import image_archive
from tests.environments.docker_engine import Engine
from tests.launch.remote.environment.image_requests import ID, request, unreported
from tests.launch.remote.environment.oci_registry import gzipped, image, layer, member, serve

pytestmark = pytest.mark.environments


def test_docker_loads_a_pulled_image_with_its_compressed_layers(engine: Engine, tmp_path: Path) -> None:
    base = gzipped(image_archive().read_bytes())
    with serve() as registry:
        name = registry.add("train", "1", image([base, layer(member("etc/motd", b"mine\n"))]))
        wanted, folder = request(name, "docker"), tmp_path / ID
        make(wanted, str(folder), os.open(os.devnull, os.O_RDONLY), unreported)
    engine.docker("load", "--input", str(folder / "image.tar"))
    assert "mine" in engine.docker("run", "--rm", "--network=host", f"ranklift/{ID}", "cat", "/etc/motd")
