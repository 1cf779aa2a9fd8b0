"""HTTPS requests to storage over connections that stay open, with answers as :class:`FetchError`."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Callable  # noqa: UP035  (nodes may run Python 3.8)
from urllib.parse import urlsplit

from launch.remote.base import timing
from launch.remote.data import faults
from launch.remote.data.faults import FetchError

__all__ = ["BODY_BYTES", "Sink", "Web", "copy_body", "read_size", "wait_asked"]

Sink = Callable[[memoryview], object]
"""Function that takes the next bytes."""
BODY_BYTES = 64 << 20
"""Most bytes of an answer that is read as a whole: a page of a list of blobs is a few MB."""
_PIECE = 1 << 20
_LARGEST_FILE = (1 << 63) - 1
"""Bytes of the largest file that Linux has."""
_LONGEST_WAIT_S = 60.0
_BUSY = (429, 500, 502, 503, 504)


class Web:
    """Connections of the threads of this process, one of a thread to each host."""

    def __init__(self) -> None:
        self._context = ssl.create_default_context()
        self._local = threading.local()

    def ask(
        self, method: str, url: str, headers: Mapping[str, str], shown: str, body: bytes = b""
    ) -> http.client.HTTPResponse:
        """Return the answer; errors name ``shown``, not ``url``.

        Raise :class:`FetchError`, also for answers that ask to come later.
        """
        address = urlsplit(url)
        target = (address.path or "/") + (f"?{address.query}" if address.query else "")
        for may_be_stale in (True, False):
            connection, is_new = self._connection(address.netloc)
            try:
                connection.request(method, target, body or None, dict(headers))
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not is_new and may_be_stale:  # the server closed it while nothing was asked
                    continue
                raise FetchError(_fault(error), f"{shown}: {_reason(error)}") from None
            self._kept()[address.netloc] = (connection, answer)
            if answer.status in _BUSY:
                why = f"{shown}: the storage answers HTTP {answer.status}"
                raise FetchError(faults.BUSY, why, wait_asked(answer))
            return answer
        raise AssertionError("unreachable")

    def _connection(self, host: str) -> tuple[http.client.HTTPSConnection, bool]:
        """Return a connection without an answer that is not read to its end, and whether it is a new one."""
        if host in self._kept():
            connection, answer = self._kept().pop(host)
            if answer.isclosed():
                return connection, False
            connection.close()
        limit = timing.STORAGE_SILENT_S
        return http.client.HTTPSConnection(host, timeout=limit, context=self._context), True

    def _kept(self) -> dict[str, tuple[http.client.HTTPSConnection, http.client.HTTPResponse]]:
        if not hasattr(self._local, "kept"):
            self._local.kept = {}
        found: dict[str, tuple[http.client.HTTPSConnection, http.client.HTTPResponse]] = self._local.kept
        return found


def wait_asked(answer: http.client.HTTPResponse) -> float:
    """Return the seconds of the answer's ``Retry-After``, within bounds; 0 without it."""
    try:
        return max(0.0, min(float(answer.headers.get("Retry-After", "0")), _LONGEST_WAIT_S))
    except ValueError:
        return 0.0


def read_size(text: str, shown: str) -> int:
    """Return the bytes of a file that a server says it has. Raise :class:`FetchError` for anything else.

    >>> read_size("1048576", "https://host/file")
    1048576
    """
    if not (text.isascii() and text.isdecimal()):
        raise FetchError(faults.REFUSED, f"{shown}: the server gives {text[:20]!r} as its number of bytes")
    size = int(text) if len(text) <= len(str(_LARGEST_FILE)) else _LARGEST_FILE + 1
    if size > _LARGEST_FILE:
        raise FetchError(
            faults.REFUSED, f"{shown}: no file has the {text[:24]}... bytes that the server gives"
        )
    return size


def copy_body(answer: http.client.HTTPResponse, size: int, sink: Sink, shown: str) -> None:
    """Pass ``size`` bytes of the answer on. Raise :class:`FetchError` where it has, or announces, others."""
    announced = answer.headers.get("Content-Length")
    if announced is not None and announced != str(size):
        raise FetchError(faults.BROKEN, f"{shown}: {announced} bytes were sent where {size} were asked for")
    room = memoryview(bytearray(min(_PIECE, size)))
    left = size
    while left:
        try:
            count = answer.readinto(room[: min(len(room), left)])
        except (OSError, http.client.HTTPException) as error:
            raise FetchError(faults.BROKEN, f"{shown}: {_reason(error)}") from None
        if not count:
            raise FetchError(faults.BROKEN, f"{shown}: the answer breaks off {left} bytes before its end")
        sink(room[:count])
        left -= count
    answer.read(0)  # notices the end, so that the connection can be used again


def _fault(error: Exception) -> str:
    """Return what comes after a request without answer: storage may be back soon, but its name and its
    certificate stay as they are."""
    is_wrong = isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, socket.gaierror) and error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
    )
    return faults.REFUSED if is_wrong else faults.BUSY


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, socket.gaierror):
        return f"its host cannot be resolved: {error.strerror}"
    if isinstance(error, TimeoutError):
        return f"no answer for {timing.STORAGE_SILENT_S:g} s"
    return str(error) or type(error).__name__
