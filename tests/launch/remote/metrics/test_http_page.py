"""The one page, and whoever else comes to its port."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.remote.metrics import http_page
from launch.remote.metrics.http_page import CONNECTIONS, REQUEST_BYTES, Unavailable, listen, serve
from launch.remote.metrics.metrics_records import HeadMetrics
from launch.remote.metrics.node_service import Page, own_address
from tests.launch.remote.metrics.known_heads import cluster

KIND = "text/plain; version=0.0.4; charset=utf-8"
Served = Callable[..., int]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serves a page; returns the port."""
    monkeypatch.setattr(http_page, "_IDLE_S", 0.05)  # each test waits as long for its end
    ending, threads = threading.Event(), []

    def begin(
        page: Callable[[], bytes] = lambda: b"up 1\n", hosts: tuple[str, ...] = (), token: str = ""
    ) -> int:
        listener = listen("127.0.0.1", 0)

        def run() -> None:
            with listener:
                serve(listener, page, KIND, hosts, ending.is_set, token)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield begin
    ending.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def ask(port: int, method: str = "GET", path: str = "/metrics", **headers: str) -> tuple[int, str, bytes]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        link.request(method, path, headers=headers)
        answer = link.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        link.close()


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(request)
        return b"".join(iter(lambda: link.recv(65536), b""))


def test_get_metrics_is_the_page(served: Served) -> None:
    port = served()
    assert ask(port) == (200, KIND, b"up 1\n")
    assert ask(port, path="/metrics?collect[]=all")[0] == 200


def test_a_request_may_come_in_pieces(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served()), 10) as link:
        for piece in (b"GET /met", b"rics HTTP/1.1\r\nHost: x\r\n", b"\r\n"):
            link.sendall(piece)
            time.sleep(0.1)
        assert link.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../etc/passwd", 404),
        ("POST", "/metrics", 405),
        ("HEAD", "/metrics", 405),
    ],
)
def test_all_else_is_refused(served: Served, method: str, path: str, status: int) -> None:
    assert ask(served(), method, path)[0] == status


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/2.0\r\n\r\n", b"400"),
        (b"\xff\x00\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES + b"\r\n\r\n", b"431"),
        (b"x" * (1 << 20), b"431"),
    ],
)
def test_what_is_not_a_request_is_refused_with_a_whole_answer(
    served: Served, request_: bytes, status: bytes
) -> None:
    answer = b""
    try:
        answer = raw(served(), request_)
    except (BrokenPipeError, ConnectionResetError):
        assert len(request_) > http_page._DRAINED_BYTES  # such a client is not read to its end
    else:
        assert answer.startswith(b"HTTP/1.1 " + status)


def test_https_is_answered_at_once_and_in_plain_words(served: Served) -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(64)
    began = time.monotonic()
    answer = raw(served(), hello)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"this port serves http, not https\n")
    assert time.monotonic() - began < http_page.LIMIT_S / 2


def test_a_line_feed_alone_ends_a_line(served: Served) -> None:
    answer = raw(served(hosts=("x",)), b"GET /metrics HTTP/1.1\nHost: x\n\n")
    assert answer.endswith(b"\r\n\r\nup 1\n")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost:1234/metrics", b"200"),
        (b"HTTP://LOCALHOST:1234/metrics?x=1", b"200"),
        (b"http://localhost:1234/", b"404"),
        (b"http://evil.example:1234/metrics", b"403"),
        (b"https://localhost:1234/metrics", b"404"),
    ],
)
def test_the_host_of_an_absolute_address_counts(served: Served, target: bytes, status: bytes) -> None:
    port = served(hosts=("localhost:1234",))
    answer = raw(port, b"GET " + target + b" HTTP/1.1\r\nHost: localhost:1234\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status)


def test_other_names_of_the_address_are_refused_where_one_is_given(served: Served) -> None:
    port = served(hosts=("localhost:1234", "127.0.0.1:1234"))
    assert ask(port, Host="localhost:1234")[0] == 200
    assert ask(port, Host="rebound.example.org:1234")[0] == 403
    assert raw(port, b"GET /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 403")


def test_silent_clients_block_nobody(served: Served) -> None:
    port = served()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * CONNECTIONS)]
    try:
        began = time.monotonic()
        assert ask(port)[0] == 200
        assert time.monotonic() - began < http_page.LIMIT_S - 1  # none of them has reached its limit
    finally:
        for link in silent:
            link.close()


def test_a_client_that_sends_slowly_or_takes_nothing_is_dropped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_page, "LIMIT_S", 0.3)
    made = threading.Event()

    def page() -> bytes:
        made.set()
        return b"x" * (32 << 20)

    port = served(page)
    with socket.create_connection(("127.0.0.1", port), 10) as slow:
        for byte in b"GET /me":
            time.sleep(0.1)
            try:
                slow.send(bytes([byte]))
            except ConnectionError:
                break
        assert slow.recv(1) == b""
    with socket.create_connection(("127.0.0.1", port), 10) as lazy:
        lazy.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert made.wait(30)
        time.sleep(1.5)
        size = 0
        try:
            while piece := lazy.recv(1 << 20):
                size += len(piece)
        except ConnectionResetError:
            pass
        assert size < 32 << 20


def test_a_large_page_arrives_whole(served: Served) -> None:
    page = b"ranklift_x 1\n" * 300_000
    assert ask(served(lambda: page))[2] == page


def test_a_page_that_cannot_be_made_is_no_end(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    errors: list[Exception] = [Unavailable("no node answers"), ValueError("odd")]

    def page() -> bytes:
        if errors:
            raise errors.pop(0)
        return b"up 1\n"

    port = served(page)
    assert ask(port)[::2] == (503, b"no node answers\n")
    assert ask(port)[0] == 500
    assert ask(port)[0] == 200
    assert "ValueError('odd')" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error() -> None:
    with listen("127.0.0.1", 0) as first, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", first.getsockname()[1])


def test_a_node_serves_at_its_address_in_the_subnet() -> None:
    assert own_address("127.0.0.0/8") == "127.0.0.1"
    with pytest.raises(OSError, match=r"no address in 127\.9\.9\.0/24"):
        own_address("127.9.9.0/24")


def test_a_nodes_page_is_made_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def made_again(folder: str, now: float) -> HeadMetrics:
        made.append(folder)
        return {"now": now, "jobs": []}

    monkeypatch.setattr("launch.remote.metrics.node_service.head_metrics", made_again)
    page = Page(str(tmp_path), cluster(size="S", location="l", answers=None))
    assert b'ranklift_cluster_info{stack="dev",size="S",location="l"} 1' in page()
    assert page() == page()
    assert made == [str(tmp_path)]


WRONG = ("t0ken", "Bearer", "Bearer t0ke", "Bearer t0kenn", "Basic t0ken")


class TestAToken:
    @pytest.mark.parametrize(
        "value",
        ["Bearer t0ken", "bearer t0ken", "Bearer  t0ken "],
        ids=["as Prometheus", "lower case", "spaces"],
    )
    def test_with_it_the_page_is_served(self, served: Served, value: str) -> None:
        assert ask(served(token="t0ken"), Authorization=value) == (200, KIND, b"up 1\n")

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            *(
                {"Authorization": value}
                for value in ("t0ken", "Bearer", "Bearer t0ke", "Bearer t0kenn", "Basic t0ken")
            ),
        ],
        ids=lambda headers: headers.get("Authorization", "none"),
    )
    def test_without_it_nothing_is_made(self, served: Served, headers: dict[str, str]) -> None:
        made: list[int] = []

        def page() -> bytes:
            made.append(1)
            return b"up 1\n"

        status, _, body = ask(served(page, token="t0ken"), **headers)
        assert (status, body, made) == (401, b"served with the token of its file alone\n", [])

    def test_two_tokens_are_none(self, served: Served) -> None:
        field = b"Authorization: Bearer t0ken\r\n"
        answer = raw(served(token="t0ken"), b"GET /metrics HTTP/1.1\r\n" + 2 * field + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"\r\nWWW-Authenticate: Bearer\r\n" in answer

    def test_bytes_of_any_kind_are_refused(self, served: Served) -> None:
        request = b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
        assert raw(served(token="t0ken"), request).startswith(b"HTTP/1.1 401 ")
