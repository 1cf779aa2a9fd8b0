"""TLS lines, which carry file contents from node to node: TLS 1.3 with a key that lives for one push.

Nodes are started and watched over ssh, and over ssh each gets the push's credential, a private key with its
own certificate. Both ends of a line must present the credential, so nobody else can send to a node or read
what a node receives. Contents do not go through ssh, which takes five times the processor time for them.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing

from launch.remote.base import timing
from launch.remote.base.files import file_in_memory

__all__ = ["CHUNK", "Line", "accept", "accept_all", "dial", "listen"]

CHUNK = 256 * 1024
_BACKLOG = 128
_STRANGERS = 64
"""Maximum number of connections without the credential; beyond it, the oldest is closed."""


class Line:
    """A TLS socket that encrypts in large pieces: one system call for many TLS records. Shake hands before
    any data."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, server_side: bool) -> None:
        self._plain = plain
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_side)
        self._room = memoryview(bytearray(CHUNK))
        plain.settimeout(timing.PUSH_STALL_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def shake_hands(self) -> None:
        """Wait until both ends have presented the credential. Raise :class:`OSError` or :class:`EOFError`."""
        while not self._is_agreed():
            self._more()

    def shake_hands_further(self) -> bool:
        """Process received data; return whether the handshake is complete. Raise OSError or EOFError."""
        self._more()
        return self._is_agreed()

    def _is_agreed(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()  # a refusal must reach the other end too
        return True

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all data. Raise :class:`OSError`."""
        self._tls.write(data)
        self._flush()

    def recv_into(self, room: memoryview) -> None:
        """Fill ``room``. Raise :class:`EOFError` or :class:`OSError` when the other end is gone."""
        filled = 0
        while filled < len(room):
            try:
                filled += int(
                    self._tls.read(len(room) - filled, room[filled:])
                )  # with a buffer, read() returns a size
            except ssl.SSLWantReadError:
                self._more()

    def close(self) -> None:
        """Close the socket."""
        self._plain.close()

    def _flush(self) -> None:
        if self._leaving.pending:
            self._plain.sendall(self._leaving.read())

    def _more(self) -> None:
        size = self._plain.recv_into(self._room)
        if not size:
            raise EOFError("the connection from another node broke")
        self._arrived.write(self._room[:size])


def listen(address: str) -> socket.socket:
    """Return a listening socket on the node's private address; the kernel chooses the port."""
    return socket.create_server((address, 0), backlog=_BACKLOG)


def accept(listener: socket.socket, credential: str) -> Line:
    """Return the line to the parent; refuse other connections or leave them waiting. Raise OSError when the
    parent does not come in time."""
    until = time.monotonic() + timing.PUSH_CONNECT_S * 2
    with listener, closing(_Arriving(listener, _context(credential, server_side=True))) as arriving:
        while (left := until - time.monotonic()) > 0:
            line = arriving.turn(left)
            if line is not None:
                return line
        refused = f"; refused connections: {arriving.refused}" if arriving.refused else ""
    raise TimeoutError(f"no connection from another node within {timing.PUSH_CONNECT_S * 2:g} s{refused}")


def accept_all(listener: socket.socket, credential: str) -> Iterator[Line]:
    """Yield each line whose other end presents the credential, for as long as this process lives."""
    with listener, closing(_Arriving(listener, _context(credential, server_side=True))) as arriving:
        while True:
            line = arriving.turn(timing.PUSH_CONNECT_S)
            if line is not None:
                yield line


class _Arriving:
    """Connections whose other end has not presented the credential yet."""

    def __init__(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        self.refused = ""
        self._listener, self._context = listener, context
        listener.setblocking(False)
        self._lines: dict[Line, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Close all connections that were not returned."""
        for line in list(self._lines):
            self._let_go(line).close()
        self._selector.close()

    def turn(self, seconds: float) -> Line | None:
        """Handle what arrives within ``seconds``; return the first line with the credential, or None."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._take_in()
            elif key.data in self._lines and self._has_shown(key.data):
                return self._let_go(key.data)
        return None

    def _take_in(self) -> None:
        try:
            plain, _ = self._listener.accept()
        except OSError:
            return
        line = Line(plain, self._context, server_side=True)
        self._lines[line] = plain
        self._selector.register(plain, selectors.EVENT_READ, line)
        if len(self._lines) > _STRANGERS:
            self._let_go(next(iter(self._lines))).close()

    def _has_shown(self, line: Line) -> bool:
        try:
            return line.shake_hands_further()
        except (OSError, EOFError) as error:
            self.refused = str(error)
            self._let_go(line).close()
            return False

    def _let_go(self, line: Line) -> Line:
        self._selector.unregister(self._lines.pop(line))
        return line


def dial(address: str, port: int, credential: str, silence: float = timing.PUSH_STALL_S) -> Line:
    """Return a line to another node, which breaks when that keeps it waiting for ``silence`` seconds.

    Raise :class:`OSError` or :class:`EOFError`.
    """
    context = _context(credential, server_side=False)
    plain = socket.create_connection((address, port), timing.PUSH_CONNECT_S)
    line = Line(plain, context, server_side=False)
    plain.settimeout(silence)
    try:
        line.shake_hands()
    except BaseException:
        line.close()
        raise
    return line


def _context(credential: str, server_side: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key is the identity: only the push's own certificate is trusted
    context.verify_mode = ssl.CERT_REQUIRED
    if server_side:
        context.num_tickets = 0
    context.load_verify_locations(cadata=credential[credential.index("-----BEGIN CERTIFICATE") :])
    # OpenSSL reads keys from files only; this file is in memory and nowhere else.
    handle = file_in_memory(credential.encode())
    try:
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
    return context
