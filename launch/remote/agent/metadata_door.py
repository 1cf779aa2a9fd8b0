"""What of the metadata service the nodes' user may have: the agent passes it on over a socket of the node.

The kernel keeps that user from the service itself. Jobs need its tokens all the same, for data and images in
Azure, and its tags: those are passed on, and tokens for other services, the Resource Manager's first of all,
are refused. Any process of that user can ask here, so whoever runs a job has the rights of the nodes'
identity on storage and registries, but cannot change Azure's resources. A job that the operator has signed is
granted the service itself, over a connection that its runner keeps open.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from launch.remote.agent.entry import GRANT, VERIFY
from launch.remote.agent.imds import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.agent.grants import Grants

__all__ = ["AUDIENCES", "Door", "is_allowed"]

AUDIENCES = (
    "https://storage.azure.com/",
    "https://containerregistry.azure.net/",
    "https://monitor.azure.com/",
)
"""Services whose tokens are passed on; a test compares them with those that the node code requests."""
_TOKEN, _INSTANCE = "/metadata/identity/oauth2/token", "/metadata/instance"
_AT_ONCE, _WAITING = 32, 1024
"""Requests that are answered at a time, and that wait: one more is refused at once, man 2 connect."""
_REQUEST_BYTES = 8192
_LIMIT_S = 10.0
_REQUEST_S = 2.0
"""Time for a whole request, and for an answer: each holds one of the places of :data:`_AT_ONCE`."""


def is_allowed(method: str, target: str) -> bool:
    """Return whether a request of the nodes' user is passed on.

    >>> is_allowed("GET", "/metadata/instance?api-version=2021-02-01")
    True
    >>> token = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://"
    >>> is_allowed("GET", token + "storage.azure.com/"), is_allowed("GET", token + "management.azure.com/")
    (True, False)
    """
    from urllib.parse import parse_qsl

    path, _, query = target.partition("?")
    if method != "GET" or not query or not all("!" <= letter <= "~" for letter in target):
        return False
    if path == _INSTANCE:
        return True
    named = [value for name, value in parse_qsl(query, keep_blank_values=True) if name.lower() == "resource"]
    return path == _TOKEN and len(named) == 1 and named[0] in AUDIENCES


class Door:
    """The socket; each request is answered by a child, so that none holds the agent up."""

    def __init__(self, path: str, imds: str, user: int, grants: Grants | None = None) -> None:
        """Listen at ``path`` for processes of ``user``, root and the agent itself; without ``grants`` no job
        is granted the identity."""
        self._imds, self._grants = imds, grants
        self.users: tuple[int, ...] = (user, os.getuid(), 0)
        self._children: list[int] = []
        if os.path.lexists(path):  # an earlier agent's
            os.unlink(path)
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._listener.bind(path)
        os.chmod(path, 0o666)  # noqa: S103  who may ask is decided by the kernel's word on who does
        self._listener.listen(_WAITING)

    def close(self) -> None:
        """Answer no more; what is being answered goes on."""
        self._listener.close()

    def start(self) -> int:
        """Answer in a process of its own, as the service may take minutes, until this one ends; return its
        id."""
        parent = os.getpid()
        child = os.fork()
        if child:
            self.close()
            return child
        try:
            while os.getppid() == parent:
                self.serve(1.0)
        finally:
            os._exit(1)

    def serve(self, seconds: float) -> None:
        """Answer for so many seconds."""
        until = time.monotonic() + seconds
        while True:
            self._reap()
            left = until - time.monotonic()
            if left <= 0:
                return
            if len(self._children) >= _AT_ONCE:
                time.sleep(min(left, 0.1))
                continue
            self._listener.settimeout(left)
            try:
                number, _ = self._listener._accept()  # type: ignore[attr-defined]  # of every socket in C
            except OSError:  # nobody came
                continue
            link = _socket.socket(fileno=number)
            if self._is_user(link):
                self._in_child(self._answer, link)
            link.close()

    def _reap(self) -> None:
        ended = [os.waitpid(child, os.WNOHANG) for child in self._children]
        self._children = [child for child, (pid, _) in zip(self._children, ended) if not pid]  # noqa: B905
        if self._grants is not None and any(pid and status for pid, status in ended):
            self._in_child(self._grants.settle)  # one that was killed may have held a grant

    def _in_child(self, act: Callable[..., None], *given: object) -> None:
        child = os.fork()
        if child:
            self._children.append(child)
            return
        status = 1
        try:
            act(*given)
            status = 0
        except OSError as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(status)

    def _is_user(self, link: _socket.socket) -> bool:
        peer = link.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(peer[4:8], sys.byteorder) in self.users

    def _answer(self, link: _socket.socket) -> None:
        until = time.monotonic() + _REQUEST_S
        head = _read(link, b"", until, lambda data: b"\r\n\r\n" in data or len(data) >= _REQUEST_BYTES)
        method, target, *_ = [*head.split(b"\r\n")[0].decode("latin-1").split(" "), "", ""]
        if method == "POST" and target in (VERIFY, GRANT) and self._grants is not None:
            self._grant(self._grants, link, target, _body(link, head, until))
        elif not is_allowed(method, target):
            _respond(link, 403, b"the node's agent does not pass this on")
        else:
            try:
                status, _, body = ask("GET", self._imds, target, b"", _LIMIT_S)
            except (OSError, ValueError) as error:
                status, body = 504, str(error).encode()
            _respond(link, status, body)

    def _grant(self, grants: Grants, link: _socket.socket, target: str, request: bytes) -> None:
        """Verify a signed request; grant it, where that is asked, until the runner hangs up."""
        from launch.remote.agent.grants import Refused

        try:
            job = grants.verified(request.decode("latin-1"))
            if target == GRANT:
                grants.hold(job, link, lambda why: _respond(link, 403 if why else 200, why.encode()))
            else:
                _respond(link, 200, b"")
        except Refused as why:
            _respond(link, 403, str(why).encode())


def _read(link: _socket.socket, data: bytes, until: float, is_enough: Callable[[bytes], bool]) -> bytes:
    """Return ``data`` and what follows it. Raise OSError where that is not enough by a time."""
    while not is_enough(data):
        link.settimeout(max(until - time.monotonic(), 0.001))
        piece = link.recv(65536)
        if not piece:
            raise OSError("a request to the agent breaks off")
        data += piece
    return data


def _body(link: _socket.socket, received: bytes, until: float) -> bytes:
    from launch.remote.agent.grants import REQUEST_BYTES

    head, _, body = received.partition(b"\r\n\r\n")
    pairs = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    length = next((value.strip() for name, _, value in pairs if name == b"content-length"), b"")
    wanted = min(int(length), REQUEST_BYTES) if length.isdigit() else 0
    return _read(link, body, until, lambda data: len(data) >= wanted)


def _respond(link: _socket.socket, status: int, body: bytes) -> None:
    link.settimeout(_REQUEST_S)
    head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    link.sendall(head.encode() + body)
