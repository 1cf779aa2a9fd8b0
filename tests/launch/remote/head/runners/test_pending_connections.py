"""Who connects to the supervisor is nobody of the job's before a valid HELLO."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from launch.remote.base import frames, timing
from launch.remote.head.runners import pending_connections
from launch.remote.head.runners.pending_connections import MOST, PendingConnections
from launch.remote.node.supervisor_link import connect

TOKEN = "00112233445566778899aabbccddeeff"
HELLO = {"rank": 0, "local_rank": 0, "node": "node000000", "pid": 7, "token": TOKEN, "proof": "p"}


def hello(**other: Any) -> bytes:
    return frames.frame(frames.HELLO, frames.pack(dict(HELLO, **other)))


class Port:
    """A supervisor's port, and whom it has taken for a runner."""

    def __init__(self) -> None:
        self.taken: list[tuple[socket.socket, dict[str, Any]]] = []
        self.selector = selectors.DefaultSelector()
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        self.address = listener.getsockname()
        self.clients: list[socket.socket] = []
        self._answered = 0
        self.pending = PendingConnections(listener, TOKEN, self.selector)

    def connect(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(self.address)
        client.settimeout(5)
        client.sendall(data)
        self.clients.append(client)
        return client

    def turn(self, seconds: float = 0.05) -> None:
        """Let everything happen that is to happen."""
        until = time.monotonic() + 5
        while ready := self.selector.select(seconds):
            for key, _ in ready:
                self.taken += key.data.on_readable(key.fd)
            assert time.monotonic() < until

    def answer(self) -> None:
        """Let happen what is to happen now, and answer the runners."""
        for key, _ in self.selector.select(0.01):
            self.taken += key.data.on_readable(key.fd)
        for connection, _ in self.taken[self._answered :]:
            connection.sendall(frames.frame(frames.BEAT))
        self._answered = len(self.taken)

    def close(self) -> None:
        self.pending.close()
        for one in self.clients:
            one.close()
        for connection, _ in self.taken:
            connection.close()
        self.selector.close()


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.close()


def is_closed(client: socket.socket) -> bool:
    client.settimeout(3)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_a_hello_with_the_token_is_handed_over_with_all_that_follows_it(port: Port) -> None:
    port.connect(hello(rank=5) + frames.frame(frames.BEAT))
    port.turn()
    ((connection, fields),) = port.taken
    assert fields == dict(HELLO, rank=5)
    assert connection.recv(100) == frames.frame(frames.BEAT)
    assert len(port.pending) == 0


def test_a_hello_may_come_in_pieces(port: Port) -> None:
    client = port.connect()
    for byte in hello():
        assert port.taken == []
        client.sendall(bytes([byte]))
        port.turn(0.005)
    assert len(port.taken) == 1


@pytest.mark.parametrize(
    "data",
    [
        *(
            pytest.param(frames.frame(kind, frames.pack({})), id=f"frame {kind.decode()} without HELLO")
            for kind in (
                b"S",
                b"Y",
                b"G",
                b"R",
                b"O",
                b"N",
                b"W",
                b"E",
                b"F",
                b"Q",
                b"L",
                b"D",
                b"V",
                b"T",
                b"B",
            )
        ),
        pytest.param(hello(token="f" * 32), id="another token"),
        pytest.param(hello(token=TOKEN[:-1]), id="a shorter token"),
        pytest.param(hello(token=TOKEN + "0"), id="a longer token"),
        pytest.param(hello(token=""), id="no token"),
        pytest.param(hello(token=7), id="a number for a token"),
        pytest.param(hello(token="\udcff"), id="a token of other bytes"),
        pytest.param(hello(node="n" * 1024), id="more than 1 KiB"),
        pytest.param(frames.HEADER.pack(frames.HELLO, 0xFFFFFFFF), id="a length of 4 GiB"),
        pytest.param(frames.frame(frames.HELLO, b"l" * 1000), id="a nested payload"),
        pytest.param(frames.frame(frames.HELLO, b"i" + b"9" * 1000 + b"e"), id="a huge number"),
        pytest.param(frames.frame(frames.HELLO), id="no payload"),
        pytest.param(frames.frame(frames.HELLO, b"de"), id="seven bytes"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
def test_anything_else_is_closed_at_once(port: Port, data: bytes) -> None:
    client = port.connect(data)
    port.turn()
    assert is_closed(client)
    assert (port.taken, len(port.pending)) == ([], 0)


def test_who_says_nothing_or_little_is_closed_when_its_time_is_over(port: Port) -> None:
    idle, slow = port.connect(), port.connect(hello()[:20])
    port.turn()
    port.pending.expire(time.monotonic() + timing.HELLO_S - 1)
    assert len(port.pending) == 2
    slow.sendall(hello()[20:21])  # gives no more time
    port.turn()
    port.pending.expire(time.monotonic() + timing.HELLO_S)
    assert is_closed(idle)
    assert is_closed(slow)
    assert len(port.pending) == 0


def test_a_flood_is_bounded_and_keeps_no_runner_out(port: Port) -> None:
    for _ in range(8):
        for _ in range(250):
            port.connect(b"H")
        port.turn(0.001)
        assert len(port.pending) == MOST if len(port.clients) > MOST else 250
    port.connect(hello())
    for _ in range(20):
        port.connect()
    port.turn()
    assert [fields for _, fields in port.taken] == [HELLO]
    assert is_closed(port.clients[0])


@pytest.mark.parametrize("sources", [["127.0.0.1"], ["127.0.0.1", "127.0.0.3", "127.0.0.4"]], ids=len)
@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", hello()[:30]], ids=["idle", "garbage", "half"]
)
def test_six_thousand_connections_while_runners_connect_keep_none_of_them_out(
    port: Port, sources: list[str], data: bytes
) -> None:
    """The flood comes from the runners' own node too, before and after each; it holds 500 at a time."""
    flood: deque[socket.socket] = deque()
    channels: list[Any] = []
    threads = []

    def run(rank: int) -> None:
        host, number = port.address
        channels.append(connect(host, number, hello(rank=rank)))

    for number in range(6000):
        flood.append(
            socket.create_connection(port.address, source_address=(sources[number % len(sources)], 0))
        )
        flood[-1].sendall(data)
        if len(flood) > 500:
            flood.popleft().close()
        if number % 500 == 250:
            threads.append(threading.Thread(target=run, args=(number // 500,)))
            threads[-1].start()
        if number % 50 == 0:
            port.answer()
            assert len(port.pending) <= MOST
    until = time.monotonic() + 20
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        port.answer()
    for one in (*flood, *filter(None, channels)):
        one.close()
    assert sorted(fields["rank"] for _, fields in port.taken) == list(range(12))
    assert len([channel for channel in channels if channel is not None]) == 12


def test_the_port_is_closed_with_all_who_wait(port: Port) -> None:
    client = port.connect()
    port.turn()
    pending = port.pending
    port.pending = PendingConnections(socket.create_server(("127.0.0.1", 0)), TOKEN, port.selector)
    pending.close()
    assert is_closed(client)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(port.address)


def test_what_waits_takes_no_more_than_a_hello(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pending_connections._LONGEST == 1024
    client = port.connect(frames.HEADER.pack(frames.HELLO, 1024) + bytes(1000))
    port.turn()
    client.sendall(bytes(100_000))
    port.turn()
    assert len(port.pending) == 0


def test_a_crowd_from_elsewhere_does_not_close_a_nodes_connection(port: Port) -> None:
    with socket.create_connection(port.address, source_address=("127.0.0.2", 0)) as node:
        port.turn()
        for _ in range(MOST + 50):
            port.connect()
        port.turn()
        node.sendall(hello())
        port.turn()
        assert [fields["rank"] for _, fields in port.taken] == [0]
