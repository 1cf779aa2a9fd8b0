"""Rehearsed nodes without any package, and stand-in nodes that hold an image."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.workplace import Workplace, rehearsed_workplace
from tests.environments import docker_engine
from tests.environments.debian_image import unpack
from tests.environments.docker_engine import Engine
from tests.environments.in_containers import TAG, ContainerNodes
from tests.launch.conda_channel import Channel, example_channel, rattler_wheel
from tests.launch.standin import Nodes, end_everything
from tests.launch.wheels import make_wheel, uv_wheel

NODES = 4


@pytest.fixture
def nothing_runs_on() -> Iterator[None]:
    """Ends what the test has started and did not end."""
    yield
    end_everything()


@pytest.fixture(scope="session")
def image_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's files, unpacked."""
    root = unpack(tmp_path_factory.mktemp("image") / "root")
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker engine of its own."""
    if os.geteuid():
        pytest.skip("a Docker engine needs root")
    with docker_engine.docker_engine() as made:
        yield made


@pytest.fixture(scope="session")
def image_file(engine: Engine, image_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same image as an archive of Docker's."""
    file = tmp_path_factory.mktemp("archive") / "image.tar"
    engine.save(image_root, TAG, file)
    yield file
    file.unlink()


@pytest.fixture
def charliecloud_nodes(tmp_path: Path, image_root: Path) -> ContainerNodes:
    """Nodes with 2, 1 and 3 slots that have Charliecloud and the image."""
    made = ContainerNodes(tmp_path, [2, 1, 3], "charliecloud")
    made.put("root", image_root)
    return made


@pytest.fixture
def docker_nodes(tmp_path: Path, engine: Engine, image_file: Path) -> ContainerNodes:
    """Nodes with 2, 1 and 3 slots that have Docker and the image's archive."""
    made = ContainerNodes(tmp_path, [2, 1, 3], "docker")
    made.put("image.tar", image_file)
    (made.bin / "docker").symlink_to(engine.program)
    made.env["DOCKER_HOST"] = engine.host
    return made


@pytest.fixture(params=["charliecloud", "docker"])
def nodes(request: pytest.FixtureRequest) -> Nodes:
    """The nodes of each runtime that can run here."""
    made: Nodes = request.getfixturevalue(f"{request.param}_nodes")
    return made


@pytest.fixture
def no_container_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails where an engine has a container after the test."""
    yield
    if "docker_nodes" in request.fixturenames or "docker" in request.node.name:
        assert request.getfixturevalue("engine").containers() == []


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A workplace whose stack ``rehearsal`` is up; nothing of it is left in the end."""
    with rehearsed_workplace(tmp_path_factory.mktemp("environments"), NODES, None) as made:
        made.configure("rehearsal", nodeCount=NODES)
        made.fab("up", "--stack", "rehearsal")
        yield made


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """Packages of conda, this machine's Python among them."""
    return example_channel(tmp_path_factory.mktemp("channel") / "local")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of two packages, of uv and of py-rattler."""
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "toolkit", "1.2", {"toolkit/__init__.py": b"ANSWER = 42\n"})
    make_wheel(folder, "gadget", "3.0", {"gadget/__init__.py": b"ANSWER = 7\n"}, ["toolkit>=1"])
    shutil.copy(uv_wheel(), folder)
    shutil.copy(rattler_wheel(), folder)
    return folder
