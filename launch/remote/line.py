"""The line on which file contents go from one node to the next: TLS 1.3 with a key that lives for one push.

Nodes are started and watched over ssh, and over ssh each gets the push's credential, a private key with its
own certificate. Both ends of a line must show it, so nobody else can send to a node or read what it is sent.
Contents do not go through ssh itself, because ssh takes five times the processor time for them.
"""

from __future__ import annotations

import os
import socket
import ssl

__all__ = ["CHUNK", "CONNECT_S", "STALL_S", "Line", "accept", "dial", "listen"]

CHUNK = 256 * 1024
CONNECT_S = 15.0
STALL_S = 60.0
"""A line that takes or brings nothing for so long is given up."""


class Line:
    """A connected socket, encrypted in large pieces: one system call for many TLS records."""

    def __init__(self, plain: socket.socket, credential: str, server_side: bool) -> None:
        self._plain = plain
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context(credential, server_side).wrap_bio(self._arrived, self._leaving, server_side)
        self._room = memoryview(bytearray(CHUNK))
        plain.settimeout(STALL_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._greet()
        except BaseException:
            plain.close()
            raise

    def _greet(self) -> None:
        try:
            while not self._greeted():
                self._flush()
                self._more()
        finally:
            self._flush()  # a refusal must reach the other end, too

    def _greeted(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def __enter__(self) -> Line:
        """Closes the socket at the end."""
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sendall(self, data: bytes | memoryview) -> None:
        """Sends everything. Raises :class:`OSError`."""
        self._tls.write(data)
        self._flush()

    def recv_into(self, room: memoryview) -> None:
        """Fills ``room``. Raises :class:`EOFError` or :class:`OSError` when the other end is gone."""
        filled = 0
        while filled < len(room):
            try:
                filled += int(
                    self._tls.read(len(room) - filled, room[filled:])
                )  # given room, it gives a size
            except ssl.SSLWantReadError:
                self._more()

    def close(self) -> None:
        """Ends the line."""
        self._plain.close()

    def _flush(self) -> None:
        if self._leaving.pending:
            self._plain.sendall(self._leaving.read())

    def _more(self) -> None:
        size = self._plain.recv_into(self._room)
        if not size:
            raise EOFError("the line from another node broke off")
        self._arrived.write(self._room[:size])


def listen(address: str) -> socket.socket:
    """A socket on the node's private address; the kernel chooses the port."""
    return socket.create_server((address, 0), backlog=1)


def accept(listener: socket.socket, credential: str) -> Line:
    """The parent's line. Raises :class:`OSError` when none comes in time or another key is shown."""
    with listener:
        listener.settimeout(CONNECT_S * 2)
        plain, _ = listener.accept()
        return Line(plain, credential, server_side=True)


def dial(address: str, port: int, credential: str) -> Line:
    """A line to a child. Raises :class:`OSError` or :class:`EOFError`."""
    return Line(socket.create_connection((address, port), CONNECT_S), credential, server_side=False)


def _context(credential: str, server_side: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the key itself is the identity, and it is known
    context.verify_mode = ssl.CERT_REQUIRED
    if server_side:
        context.num_tickets = 0
    context.load_verify_locations(cadata=credential[credential.index("-----BEGIN CERTIFICATE") :])
    # OpenSSL reads keys from files only; this one is in memory and nowhere else.
    handle = os.memfd_create("credential")
    try:
        os.write(handle, credential.encode())
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
    return context
