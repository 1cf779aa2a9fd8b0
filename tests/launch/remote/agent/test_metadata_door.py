"""What the nodes' user gets of the metadata service from the agent: tags, and tokens of some services."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from launch.remote.agent import imds
from launch.remote.agent.identity_token import identity_token
from launch.remote.agent.metadata_door import AUDIENCES, Door, is_allowed
from launch.remote.data import blob
from launch.remote.environment import azure_registry
from launch.remote.metrics import monitor_link
from tests.launch.remote.metadata_service import MetadataService

TOKEN = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource="
STORAGE = "https://storage.azure.com/"


@pytest.fixture
def service() -> Iterator[MetadataService]:
    made = MetadataService()
    made.tags = {imds.IDENTITY: "the client"}
    yield made
    made.close()


@pytest.fixture
def door(tmp_path: Path, service: MetadataService) -> Iterator[str]:
    """The address of one that answers this test's user until its end."""
    made, ended = Door(str(tmp_path / "metadata"), service.url, os.getuid()), threading.Event()

    def serve() -> None:
        while not ended.is_set():
            made.serve(0.1)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"unix:{tmp_path / 'metadata'}"
    ended.set()
    thread.join()
    made.close()


def test_node_code_gets_the_tokens_that_it_requests(door: str, service: MetadataService) -> None:
    assert {blob.AUDIENCE, azure_registry.AUDIENCE, monitor_link.AUDIENCE} == set(AUDIENCES)
    for audience in AUDIENCES:
        assert identity_token(audience, door) == ("the token", 0.0)
    asked = [path for _, path, _, _ in service.asked if "identity" in path]
    assert asked == [f"{TOKEN}{audience}&client_id=the%20client" for audience in AUDIENCES]


def test_a_token_of_the_resource_manager_is_refused_before_the_service_is_asked(
    door: str, service: MetadataService
) -> None:
    with pytest.raises(OSError, match="HTTP 403"):
        identity_token("https://management.azure.com/", door)
    assert not any("identity" in path for _, path, _, _ in service.asked)


@pytest.mark.parametrize(
    "target",
    [
        TOKEN,
        f"{TOKEN}https://management.azure.com/",
        f"{TOKEN}https://management.azure.com/&resource={STORAGE}",
        f"{TOKEN}{STORAGE}&resource=https://management.azure.com/",
        f"{TOKEN}{STORAGE}&Resource=https://management.azure.com/",
        f"{TOKEN}{STORAGE}&re%73ource=https://management.azure.com/",
        f"{TOKEN}{STORAGE}%20https://management.azure.com/",
        f"{TOKEN}{STORAGE}\nX: y",
        f"{TOKEN}{STORAGE}\r\nX: y",
        f"//169.254.169.254{TOKEN}{STORAGE}",
        f"/metadata/instance/..{TOKEN}https://management.azure.com/",
        "/metadata/scheduledevents?api-version=2020-07-01",
        "/subscriptions/1?api-version=2024-07-01",
    ],
)
def test_other_requests_are_refused(target: str) -> None:
    assert not is_allowed("GET", target)
    assert is_allowed("GET", TOKEN + STORAGE) and not is_allowed("POST", TOKEN + STORAGE)


def test_another_user_of_the_node_gets_nothing(tmp_path: Path, service: MetadataService) -> None:
    made = Door(str(tmp_path / "metadata"), service.url, os.getuid())
    made.users = (4_000_000,)
    thread = threading.Thread(target=made.serve, args=(1.0,))
    thread.start()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(5)
        silent.connect(str(tmp_path / "metadata"))
        assert silent.recv(1) == b""  # before anything is read
        with pytest.raises(OSError):
            identity_token(STORAGE, f"unix:{tmp_path / 'metadata'}")
    thread.join()
    made.close()
    assert service.asked == []


def test_one_that_says_nothing_holds_nobody_up(door: str) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(door.removeprefix("unix:"))
        assert identity_token(STORAGE, door) is not None


def test_many_that_send_their_requests_slowly_end_in_time(door: str) -> None:
    ended = threading.Event()
    slow = [socket.socket(socket.AF_UNIX) for _ in range(33)]

    def send() -> None:
        while not ended.wait(0.3):
            for one in slow:
                with suppress(OSError):
                    one.send(b"x")

    thread = threading.Thread(target=send)
    try:
        for one in slow:
            one.setblocking(False)
            with suppress(BlockingIOError):  # the queue is full
                one.connect(door.removeprefix("unix:"))
        thread.start()
        assert identity_token(STORAGE, door) is not None
    finally:
        ended.set()
        thread.join()
        for one in slow:
            one.close()
