"""What of the metadata service the nodes' user may have: the agent passes it on over a socket of the node.

The kernel keeps that user from the service itself. Jobs need its tokens all the same, for data and images in
Azure, and its tags: those are passed on, and tokens for other services, the Resource Manager's first of all,
are refused. Any process of that user can ask here, so whoever runs a job has the rights of the nodes'
identity on storage and registries, but cannot change Azure's resources.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from launch.remote.agent.imds import ask

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

    def __init__(self, path: str, imds: str, user: int) -> None:
        """Listen at ``path`` for processes of ``user``, root and the agent itself."""
        self._imds = imds
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
            self._children = [child for child in self._children if not os.waitpid(child, os.WNOHANG)[0]]
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
            if not self._is_user(link):
                link.close()
                continue
            child = os.fork()
            if not child:
                try:
                    self._answer(link)
                finally:
                    os._exit(0)
            link.close()
            self._children.append(child)

    def _is_user(self, link: _socket.socket) -> bool:
        peer = link.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(peer[4:8], sys.byteorder) in self.users

    def _answer(self, link: _socket.socket) -> None:
        until = time.monotonic() + _REQUEST_S
        request = b""
        while b"\r\n\r\n" not in request and len(request) < _REQUEST_BYTES:
            link.settimeout(max(until - time.monotonic(), 0.001))
            piece = link.recv(4096)
            if not piece:
                return
            request += piece
        method, target, *_ = [*request.split(b"\r\n")[0].decode("latin-1").split(" "), "", ""]
        if not is_allowed(method, target):
            status, body = 403, b"the node's agent does not pass this on"
        else:
            try:
                status, _, body = ask("GET", self._imds, target, b"", _LIMIT_S)
            except (OSError, ValueError) as error:
                status, body = 504, str(error).encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        link.settimeout(_REQUEST_S)
        link.sendall(head.encode() + body)
