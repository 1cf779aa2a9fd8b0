"""Where the answers of a host that the user named may lead, and what is sent there."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from launch.remote.environment.download import web_client as module
from launch.remote.environment.download.web_client import (
    Misled,
    Reach,
    Refusal,
    WebClient,
    load_object,
    reach_of,
)


class Site:
    """A web server on an address of loopback, and the requests that came to it."""

    def __init__(self, address: str) -> None:
        self.address, self.port = address, 0
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Authorization."""
        self.locations: dict[str, str] = {}
        """By path, where it redirects to."""
        self.status = 302
        self.body = b"found"

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"


@contextlib.contextmanager
def serve(address: str) -> Iterator[Site]:
    site = Site(address)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            site.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
            target = site.locations.get(self.path, "")
            self.send_response(site.status if target else 200)
            if target:
                self.send_header("Location", target)
            self.end_headers()
            self.wfile.write(site.body)

        do_POST = do_GET

    server = ThreadingHTTPServer((address, 0), Handler)
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    """The host that the user named."""
    with serve("127.0.0.1") as made:
        yield made


@pytest.fixture
def service() -> Iterator[socket.socket]:
    """A service of this node that nobody is to reach from outside."""
    with socket.create_server(("127.0.0.2", 0)) as listening:
        listening.settimeout(0.5)
        yield listening


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    """The named host is on the internet."""
    monkeypatch.setattr(module, "reach_of", lambda one: Reach.PUBLIC if one == "127.0.0.1" else reach_of(one))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Function that lets a name resolve to an address."""
    known: dict[str, str] = {}
    resolve = socket.getaddrinfo

    def lookup(host: str, *words: Any, **named: Any) -> Any:
        return resolve(known.get(host, host), *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    yield known.__setitem__


def client(site: Site, name: str = "") -> WebClient:
    return WebClient(f"http://{name or site.address}:{site.port}", ssl.create_default_context(), 5.0)


def sent_to(service: socket.socket) -> bytes:
    """Return what was sent to a service over its first connection."""
    try:
        connection, _ = service.accept()
    except TimeoutError:
        return b""
    with connection:
        connection.settimeout(0.5)
        try:
            return connection.recv(4096)
        except (TimeoutError, ConnectionError):
            return b""


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("8.8.8.8", Reach.PUBLIC),
        ("2606:4700::6810:84e5", Reach.PUBLIC),
        ("10.0.0.4", Reach.PRIVATE),
        ("172.16.0.1", Reach.PRIVATE),
        ("192.168.1.1", Reach.PRIVATE),
        ("100.64.0.1", Reach.PRIVATE),
        ("fd00::1", Reach.PRIVATE),
        ("::ffff:10.0.0.4", Reach.PRIVATE),
        ("127.0.0.1", Reach.LOOPBACK),
        ("127.255.0.3", Reach.LOOPBACK),
        ("::1", Reach.LOOPBACK),
        ("::ffff:127.0.0.1", Reach.LOOPBACK),
        ("64:ff9b::7f00:1", Reach.LOOPBACK),
        ("2002:7f00:1::", Reach.LOOPBACK),
        ("169.254.169.254", Reach.NEVER),
        ("169.254.0.1", Reach.NEVER),
        ("168.63.129.16", Reach.NEVER),
        ("::ffff:168.63.129.16", Reach.NEVER),
        ("::ffff:169.254.169.254", Reach.NEVER),
        ("64:ff9b::a9fe:a9fe", Reach.NEVER),
        ("2002:a9fe:a9fe::", Reach.NEVER),
        ("fe80::1%eth0", Reach.NEVER),
        ("0.0.0.0", Reach.NEVER),
        ("::", Reach.NEVER),
        ("::7f00:1", Reach.NEVER),
        ("224.0.0.1", Reach.NEVER),
        ("255.255.255.255", Reach.NEVER),
        ("ff02::1", Reach.NEVER),
    ],
)
def test_an_address_is_as_near_as_its_network(address: str, reach: Reach) -> None:
    assert reach_of(address) == reach


@pytest.mark.usefixtures("public")
@pytest.mark.parametrize(
    "host",
    ["127.0.0.2", "2130706434", "0x7f.2", "0177.0.0.02", "127.2", "[::ffff:127.0.0.2]", "storage.test"],
)
def test_a_public_host_does_not_lead_to_this_node(
    site: Site, service: socket.socket, names: Callable[[str, str], None], host: str
) -> None:
    names("storage.test", "127.0.0.2")
    site.locations["/a"] = f"https://{host}:{service.getsockname()[1]}/secret?signature=x"
    with pytest.raises(Misled, match="that is not asked") as refused:
        client(site).open(f"{site.url}/a", {})
    assert "signature" not in str(refused.value)
    with pytest.raises(Misled):
        client(site).open(site.locations["/a"], {}, led_by=Reach.PUBLIC)
    assert sent_to(service) == b""


@pytest.mark.usefixtures("public")
def test_a_host_whose_name_resolves_to_another_address_meanwhile_is_not_asked_there(
    site: Site, service: socket.socket, names: Callable[[str, str], None]
) -> None:
    names("registry.test", "127.0.0.1")
    asked = client(site, "registry.test")
    site.locations["/a"] = f"https://registry.test:{service.getsockname()[1]}/b"
    with pytest.raises(urllib.error.URLError):  # the same address: no TLS there
        asked.open(f"http://registry.test:{site.port}/a", {})
    names("registry.test", "127.0.0.2")
    with pytest.raises(Misled, match=r"registry\.test:\d+, which is 127\.0\.0\.2 here"):
        asked.open(site.locations["/a"], {}, led_by=Reach.PUBLIC)
    assert sent_to(service) == b""


@pytest.mark.parametrize("address", ["169.254.169.254", "168.63.129.16", "224.0.0.1"])
def test_no_host_leads_to_the_platforms_addresses(site: Site, address: str) -> None:
    site.locations["/a"] = f"https://{address}/metadata"
    with pytest.raises(Misled, match=f"leads to https://{address}, an address of another network"):
        client(site).open(f"{site.url}/a", {})


@pytest.mark.parametrize("address", ["169.254.169.254", "168.63.129.16"])
def test_a_named_host_that_is_the_platforms_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    with serve("127.0.0.1") as here:
        monkeypatch.setattr(module, "reach_of", lambda _: reach_of(address))
        with pytest.raises(Misled, match="that is not asked"):
            client(here).open(here.url, {})
        assert here.requests == []


@pytest.mark.parametrize(
    "target",
    [
        "http://other.test/",
        "http://10.0.0.9/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
        "https://",
        "https://user:secret@127.0.0.1/",
        "https://[::1/",
        "https://a:b/",
        "https://a:99999/",
        "https://a:0/",
        "https://a b/",
        "https://\xe4.test/",
        "https://a/" + "x" * 9000,
    ],
)
def test_an_address_that_is_none_or_without_tls_is_not_asked(site: Site, target: str) -> None:
    site.locations["/a"] = target
    with pytest.raises((Misled, Refusal)) as refused:
        client(site).open(f"{site.url}/a", {})
    assert len(site.requests) < 3
    assert "secret" not in str(refused.value)
    assert len(str(refused.value)) < 200


def test_a_named_host_without_tls_leads_to_itself_and_loopback_to_loopback(site: Site) -> None:
    site.locations["/a"] = "/b"
    assert client(site).open(f"{site.url}/a", {}).response.read() == b"found"
    with serve("127.0.0.2") as other:
        site.locations["/a"] = other.url + "/c"
        answer = client(site).open(f"{site.url}/a", {}, authorization="Basic x")
        assert (answer.response.read(), answer.reach) == (b"found", Reach.LOOPBACK)
        assert other.requests == [("GET", "/c", "")]


def test_a_redirection_on_the_same_host_keeps_the_login_and_one_to_another_does_not(site: Site) -> None:
    with serve("127.0.0.2") as other:
        site.locations.update({"/a": "/b", "/b": other.url + "/c"})
        other.locations["/c"] = site.url + "/d"
        client(site).open(f"{site.url}/a", {}, authorization="Basic x").response.close()
        assert site.requests == [("GET", "/a", "Basic x"), ("GET", "/b", "Basic x"), ("GET", "/d", "")]
        assert other.requests == [("GET", "/c", "")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_body_is_not_redirected(site: Site, status: int) -> None:
    with serve("127.0.0.2") as other:
        site.status, site.locations["/token"] = status, other.url
        with pytest.raises(Refusal, match=f"HTTP {status}"):
            client(site).open(f"{site.url}/token", {}, body=b"refresh_token=secret")
        assert other.requests == []


def test_five_redirections_are_followed_and_no_sixth(site: Site) -> None:
    site.locations.update({f"/{number}": f"/{number + 1}" for number in range(5)})
    assert client(site).open(f"{site.url}/0", {}).response.read() == b"found"
    site.locations["/5"] = "/6"
    with pytest.raises(Misled, match="over 5 redirections"):
        client(site).open(f"{site.url}/0", {})
    assert len(site.requests) == 12


def test_the_body_of_a_redirection_is_not_read(site: Site) -> None:
    with serve("127.0.0.2") as other:
        other.body = bytes(300 << 20)
        site.locations["/a"], other.locations["/b"] = other.url + "/b", site.url + "/c"
        begun = time.process_time()
        assert client(site).open(f"{site.url}/a", {}).response.read() == b"found"
        assert time.process_time() - begun < 2


def test_a_proxy_is_not_led_to_addresses_either(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve("127.0.0.3") as proxy:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        proxy.locations["http://registry.test/a"] = "https://169.254.169.254/"
        asked = WebClient("http://registry.test", ssl.create_default_context(), 5.0)
        with pytest.raises(Misled, match=r"169\.254\.169\.254, an address of another network"):
            asked.open("http://registry.test/a", {})
        assert [path for _, path, _ in proxy.requests] == ["http://registry.test/a"]
        proxy.locations.clear()
        assert asked.open("http://registry.test/b", {}).response.read() == b"found"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"3",
        b"{]",
        b"\xff",
        b'{"a":' * 100_000,
        b'{"a": ' + b"[" * 1_000_000,
        b'{"a": ' + b"9" * 4_000_000 + b"}",
    ],
    ids=lambda data: data[:12],
)
def test_what_is_no_small_object_is_refused_within_a_second(data: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match=r".") as refused:
        load_object(data)
    assert time.process_time() - begun < 1
    assert len(str(refused.value)) < 200
