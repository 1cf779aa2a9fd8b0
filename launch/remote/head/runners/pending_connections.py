"""Connections to the supervisor's port whose peer has not proved yet that it is one of the job's runners.

Anybody who reaches the head's private address may connect. Until a valid HELLO has come, a connection does
not belong to the job: it is read only as far as a HELLO goes, nothing waits for it, and it is closed after
``timing.HELLO_S``, or earlier when more than :data:`MOST` wait: then the address with the most connections
loses its oldest one, so that idle connections in any number from elsewhere do not crowd out a node's runners.
A runner that was crowded out all the same, from its own node, connects again.
"""

from __future__ import annotations

import selectors
import socket
import time
from typing import Any

from launch.remote.base import frames, timing
from launch.remote.base.encryption import is_equal
from launch.remote.base.payloads import Hello
from launch.remote.head.runners import frame_fields

__all__ = ["MOST", "PendingConnections"]

MOST = 256
"""Connections that may wait for their HELLO at a time."""
_LONGEST = 1024
"""Bytes of a HELLO at most."""
_AT_ONCE = 64
"""Connections accepted at a time: the frames of the ranks' runners are read in between."""


class _Pending:
    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection, self.address = connection, address
        self.until = time.monotonic() + timing.HELLO_S
        self.data = b""

    @property
    def wanted(self) -> int:
        """Bytes still to come of the frame, none of the next. Raises ProtocolError."""
        if len(self.data) < frames.HEADER.size:
            return frames.HEADER.size - len(self.data)
        kind, length = frames.HEADER.unpack_from(self.data)
        if kind != frames.HELLO or length > _LONGEST:
            raise frames.ProtocolError(f"a frame of type {kind!r} and {length} bytes before HELLO")
        return frames.HEADER.size + int(length) - len(self.data)

    def hello(self) -> Hello:
        """Return the fields of its HELLO. Raise BlockingIOError until it is complete, OSError and
        ProtocolError when none will come."""
        while self.wanted:
            data = self.connection.recv(self.wanted)
            if not data:
                raise frames.ProtocolError("closed before HELLO")
            self.data += data
        fields: Any = frame_fields.read(frames.HELLO, self.data[frames.HEADER.size :])
        hello: Hello = fields
        return hello


class PendingConnections:
    """Accepts connections at ``listener`` until each has shown a HELLO with ``token``; the keys' data in
    ``selector`` is this object."""

    def __init__(self, listener: socket.socket, token: str, selector: selectors.BaseSelector) -> None:
        self._listener, self._token, self._selector = listener, token, selector
        self._pending: dict[int, _Pending] = {}
        """By descriptor, the oldest first."""
        selector.register(listener, selectors.EVENT_READ, self)

    def __len__(self) -> int:
        """Number of connections that wait for their HELLO."""
        return len(self._pending)

    def expire(self, now: float) -> None:
        """Close the connections whose time for a HELLO is over."""
        for pending in list(self._pending.values()):
            if now < pending.until:
                return
            self._close(pending)

    def close(self) -> None:
        """Close the port and every connection that waits."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for pending in list(self._pending.values()):
            self._close(pending)

    def on_readable(self, fd: int) -> list[tuple[socket.socket, Hello]]:
        """Read at a descriptor that is ready; return the connections whose HELLO is complete, each with the
        HELLO's fields. They belong to the caller."""
        if fd == self._listener.fileno():
            return self._accept()
        return self._read(self._pending[fd]) if fd in self._pending else []  # closed in the same turn

    def _accept(self) -> list[tuple[socket.socket, Hello]]:
        greeted = []
        for _ in range(_AT_ONCE):
            try:
                connection, (address, _port) = self._listener.accept()
            except OSError:
                break
            connection.setblocking(False)
            pending = _Pending(connection, address)
            self._pending[connection.fileno()] = pending
            self._selector.register(connection, selectors.EVENT_READ, self)
            greeted += self._read(pending)  # a runner sends its HELLO at once
            if len(self._pending) > MOST:
                self._close(self._to_evict())
        return greeted

    def _to_evict(self) -> _Pending:
        """Return the oldest connection of the address that has the most."""
        addresses = [pending.address for pending in self._pending.values()]
        crowd = max(dict.fromkeys(addresses), key=addresses.count)
        return next(pending for pending in self._pending.values() if pending.address == crowd)

    def _read(self, pending: _Pending) -> list[tuple[socket.socket, Hello]]:
        try:
            hello = pending.hello()
        except BlockingIOError:
            return []
        except (OSError, frames.ProtocolError):
            self._close(pending)
            return []
        if not is_equal(hello["token"], self._token):
            self._close(pending)
            return []
        self._forget(pending)
        pending.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return [(pending.connection, hello)]

    def _forget(self, pending: _Pending) -> None:
        self._selector.unregister(pending.connection)
        del self._pending[pending.connection.fileno()]

    def _close(self, pending: _Pending) -> None:
        self._forget(pending)
        pending.connection.close()
