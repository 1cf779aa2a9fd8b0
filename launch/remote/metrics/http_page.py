"""One page over HTTP, by one thread: ``GET /metrics``, and nothing else.

Whoever can reach the port may be an attacker. A request has 4 KiB and 5 s, an answer 5 s, and at most 16
connections are open: one more takes the place of the oldest, so that silent clients block no other.
"""

from __future__ import annotations

import re
import selectors
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Answer = tuple[int, str, bytes]

__all__ = ["CONNECTIONS", "LIMIT_S", "REQUEST_BYTES", "Unavailable", "listen", "serve"]

CONNECTIONS = 16
_BACKLOG = 128
"""Connections that the kernel keeps until they are accepted; another one waits a second to try again."""
REQUEST_BYTES = 4096
LIMIT_S = 5.0
"""Limit for a request to arrive, for the answer to be taken, and for the client to close."""
_DRAINED_BYTES = 64 << 10
"""Bytes that are read after an answer: to close before would reset the connection, and lose the answer."""
_IDLE_S = 1.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_OK, _BAD, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _METHOD, _TOO_LARGE, _INTERNAL, _UNAVAILABLE = _REASONS
_PLAIN = "text/plain; charset=utf-8"
_TLS = b"\x16"
"""First byte of a TLS connection: its client's handshake (RFC 8446, 5.1)."""
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(r"\r?\n")
"""RFC 9112, 2.2: a line feed alone may be taken for the end of a line."""
_ABSOLUTE = re.compile(r"http://([^/?#]*)", re.IGNORECASE)


class Unavailable(Exception):
    """The page cannot be made now; its text is the answer."""


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an IPv4 address. Raise OSError where the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def serve(
    listener: socket.socket,
    page: Callable[[], bytes],
    content_type: str,
    hosts: Collection[str] = (),
    until: Callable[[], bool] = lambda: False,
    token: str = "",
) -> None:
    """Serve ``page`` until ``until`` holds, which is checked every second at least.

    With ``hosts``, requests for any other Host are refused: a web page whose name is made to resolve to this
    address could read the metrics through its visitor's browser. With a ``token``, requests without it are
    refused (RFC 6750, 2.1): any user of a machine reaches its loopback address.
    """
    gate = _Gate(hosts, token)
    clients: list[_Client] = []
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        try:
            while not until():
                now = time.monotonic()
                wait = min((one.deadline - now for one in clients), default=_IDLE_S)
                for key, _ in selector.select(max(0.0, min(wait, _IDLE_S))):
                    if key.data is None:
                        _accept(listener, selector, clients)
                        continue
                    if key.data not in clients:
                        continue  # it made room for a new connection of this round
                    request = key.data.step(selector)
                    if request is not None:
                        began = time.monotonic()
                        key.data.begin(selector, _answer(request, page, content_type, gate))
                        for one in clients:  # what the page took is not theirs
                            one.deadline += time.monotonic() - began
                now = time.monotonic()
                for one in [one for one in clients if one.is_done or now > one.deadline]:
                    _drop(one, selector, clients)
        finally:
            for one in list(clients):
                _drop(one, selector, clients)


def _accept(listener: socket.socket, selector: selectors.BaseSelector, clients: list[_Client]) -> None:
    try:
        link, _ = listener.accept()
    except OSError:
        return  # it has gone again
    if len(clients) >= CONNECTIONS:
        _drop(clients[0], selector, clients)
    link.setblocking(False)
    client = _Client(link)
    clients.append(client)
    selector.register(link, selectors.EVENT_READ, client)


def _drop(client: _Client, selector: selectors.BaseSelector, clients: list[_Client]) -> None:
    clients.remove(client)
    selector.unregister(client.link)
    client.link.close()


class _Client:
    """A connection: its request comes, then its answer goes, then it is read until the client closes it."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.deadline = time.monotonic() + LIMIT_S
        self.is_done = False
        self._request = b""
        self._left: memoryview | None = None
        self._drained = -1

    def step(self, selector: selectors.BaseSelector) -> bytes | None:
        """Go on as far as the connection lets; return the request once it is whole or too long."""
        try:
            if self._left is not None:
                self._send(selector)
            elif self._drained >= 0:
                data = self.link.recv(4096)
                self._drained += len(data)
                self.is_done = not data or self._drained > _DRAINED_BYTES
            else:
                data = self.link.recv(REQUEST_BYTES + 1 - len(self._request))
                self._request += data
                self.is_done = not data
                if _is_whole(self._request) or len(self._request) > REQUEST_BYTES:
                    return self._request
        except BlockingIOError:
            return None
        except OSError:
            self.is_done = True
        return None

    def begin(self, selector: selectors.BaseSelector, answer: bytes) -> None:
        """Begin to send the answer."""
        self._left = memoryview(answer)
        self.deadline = time.monotonic() + LIMIT_S
        selector.modify(self.link, selectors.EVENT_WRITE, self)

    def _send(self, selector: selectors.BaseSelector) -> None:
        assert self._left is not None  # noqa: S101  its one caller
        self._left = self._left[self.link.send(self._left) :]
        if not self._left:
            self._left, self._drained = None, 0
            self.deadline = time.monotonic() + LIMIT_S
            self.link.shutdown(socket.SHUT_WR)
            selector.modify(self.link, selectors.EVENT_READ, self)


def _is_whole(request: bytes) -> bool:
    """Return whether no more of a request is needed for its answer: its head has ended, or it is TLS."""
    return request[:1] == _TLS or _HEAD_END.search(request) is not None


class _Gate:
    """Whose requests are answered."""

    def __init__(self, hosts: Collection[str], token: str) -> None:
        self._hosts, self._token = hosts, token.encode()

    def refusal(self, hosts: list[str], credentials: list[str]) -> Answer | None:
        """Return the answer to a request that is refused, by its fields Host and Authorization."""
        if self._hosts and (len(hosts) != 1 or hosts[0] not in self._hosts):
            return _FORBIDDEN, _PLAIN, b"served only under its own address\n"
        if not self._token:
            return None
        from hmac import compare_digest  # nodes serve without a token

        scheme, _, given = (credentials[0] if len(credentials) == 1 else "").partition(" ")
        if scheme.lower() == "bearer" and compare_digest(given.strip().encode(), self._token):
            return None
        return _UNAUTHORIZED, _PLAIN, b"served with the token of its file alone\n"


def _answer(request: bytes, page: Callable[[], bytes], content_type: str, gate: _Gate) -> bytes:
    status, kind, body = _content(request, page, content_type, gate)
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    head += "Allow: GET\r\n" if status == _METHOD else ""
    head += "WWW-Authenticate: Bearer\r\n" if status == _UNAUTHORIZED else ""
    return f"{head}Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n".encode() + body


def _content(  # noqa: PLR0911  each refusal is one
    request: bytes, page: Callable[[], bytes], content_type: str, gate: _Gate
) -> Answer:
    """Return status, content type and body."""
    if request[:1] == _TLS:
        return _BAD, _PLAIN, b"this port serves http, not https\n"
    end = _HEAD_END.search(request)
    if end is None:
        return _TOO_LARGE, _PLAIN, b"a request has at most 4096 bytes\n"
    first, *lines = _LINE_END.split(request[: end.start()].decode("latin-1"))
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):  # noqa: PLR2004  method, path, version
        return _BAD, _PLAIN, b"not a request of HTTP/1.0 or HTTP/1.1\n"
    if words[0] != "GET":
        return _METHOD, _PLAIN, b"only GET is served\n"
    fields = [line.partition(":") for line in lines]
    named = [value.strip().lower() for name, _, value in fields if name.strip().lower() == "host"]
    credentials = [value.strip() for name, _, value in fields if name.strip().lower() == "authorization"]
    path = words[1]
    absolute = _ABSOLUTE.match(path)
    if absolute is not None:  # RFC 9112, 3.2.2: its host counts, whatever the field Host has
        path, named = path[absolute.end() :], [absolute.group(1).lower()]
    if path.partition("?")[0] != "/metrics":
        return _NOT_FOUND, _PLAIN, b"only /metrics is served\n"
    refusal = gate.refusal(named, credentials)
    if refusal is not None:
        return refusal
    try:
        return _OK, content_type, page()
    except Unavailable as error:
        return _UNAVAILABLE, _PLAIN, f"{error}\n".encode("utf-8", "replace")
    except Exception as error:  # noqa: BLE001  whatever it was, the next request may go well
        sys.stderr.write(f"the metrics could not be made: {error!r:.200}\n")
        return _INTERNAL, _PLAIN, b"the metrics could not be made: see the log\n"
