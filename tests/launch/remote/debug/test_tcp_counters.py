"""Bytes of connections, as the kernel counts them."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from launch.remote.debug import tcp_counters
from launch.remote.debug.tcp_counters import received_bytes


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection between two addresses of this machine, which are taken for two machines."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        client = socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))
        return client, server.accept()[0]


def test_the_bytes_that_came_are_counted_by_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    client, served = pair
    with client, served:
        client.sendall(bytes(5000))
        served.recv(1 << 16)
        found = received_bytes()
        assert found[str(os.fstat(served.fileno()).st_ino)] == 5000
        assert found[str(os.fstat(client.fileno()).st_ino)] == 0


def test_connections_within_a_machine_do_not_count() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert str(os.fstat(client.fileno()).st_ino) not in received_bytes()


def test_a_kernel_that_does_not_count_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(socket, "socket", refuse)
    assert received_bytes() == {}


def test_an_answer_that_is_cut_short_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(*_: object) -> None:
        raise struct.error("unpack_from requires a buffer")

    monkeypatch.setattr(tcp_counters, "_read", torn)
    with socket.create_server(("127.0.0.2", 0)) as server, socket.create_connection(server.getsockname()):
        assert received_bytes() == {}
