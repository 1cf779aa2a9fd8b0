"""Moves one remote command's bytes: no threads, no polling while nothing is sent, binary safe.

invoke starts three threads a command, looks every 10 ms whether it has ended and reads 1000 bytes at a time.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from typing import IO

from paramiko import Channel

__all__ = ["KEPT_BYTES", "QUIET_S", "DeadlinePassed", "Tail", "exchange"]

QUIET_S = 15.0
"""A node that has sent nothing for this long is asked whether it is there, and has as long to answer."""
_POLL_S = 0.005
_CHUNK = 1 << 18


KEPT_BYTES = 1 << 20
"""What is kept of output that nobody reads as it comes, of each stream of each node."""


class Tail:
    """The last :data:`KEPT_BYTES` of a stream, and how much came before them."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        """Keeps ``data``, as far as its end is within the limit."""
        self._kept += data
        if len(self._kept) > 2 * KEPT_BYTES:  # not at every piece: what is left is moved each time
            self._cut()

    def end(self) -> bytes:
        """What is kept; from here on :attr:`left_out` is true."""
        self._cut()
        return bytes(self._kept)

    def _cut(self) -> None:
        over = len(self._kept) - KEPT_BYTES
        if over > 0:
            self.left_out += over
            del self._kept[:over]


class DeadlinePassed(Exception):
    """The caller's time limit is over."""


def exchange(
    channel: Channel,
    on_stdout: Callable[[bytes], object],
    stdin: bytes | IO[bytes] | None,
    deadline: float | None,
    ask_alive: Callable[[], None],
) -> Tail:
    """Feeds ``stdin`` and hands stdout on until the command has ended; gives the end of stderr.

    ``deadline`` is in :func:`time.monotonic`'s seconds. ``ask_alive`` is called after each quiet spell and
    raises when the node is gone. What ``on_stdout`` and ``stdin`` raise goes through.

    Raises :class:`DeadlinePassed`.
    """
    stderr = Tail()
    feed = _Feed(channel, stdin)
    ready = select.poll()
    ready.register(channel.fileno(), select.POLLIN)
    heard = time.monotonic()
    while True:
        # The node's end is looked at first: what came before it is in the buffers by then.
        ended = channel.closed or (channel.eof_received and channel.status_event.is_set())
        moved = _receive(channel, on_stdout, stderr) or feed.push()
        now = time.monotonic()
        if ended and not moved:
            return stderr
        if deadline is not None and now > deadline:
            raise DeadlinePassed
        if moved:
            heard = now
            continue
        if now - heard > QUIET_S:
            ask_alive()
            heard = time.monotonic()
        # paramiko wakes us for what arrives, not for room to send.
        patience = QUIET_S if feed.done else _POLL_S
        if deadline is not None:
            patience = min(patience, deadline - now)
        if channel.eof_received:
            # Its descriptor stays readable from here on; the status, or the close, is what is missing.
            channel.status_event.wait(max(0.001, patience))
        else:
            ready.poll(max(1.0, patience * 1000))


def _receive(channel: Channel, on_stdout: Callable[[bytes], object], stderr: Tail) -> bool:
    moved = False
    if channel.recv_stderr_ready():
        stderr.add(channel.recv_stderr(_CHUNK))
        moved = True
    if channel.recv_ready():
        on_stdout(channel.recv(_CHUNK))
        moved = True
    return moved


class _Feed:
    """What is still to be sent."""

    def __init__(self, channel: Channel, stdin: bytes | IO[bytes] | None) -> None:
        self._channel = channel
        self._chunks = _chunks(stdin)
        self._pending = memoryview(b"")
        self.done = False

    def push(self) -> bool:
        """Sends what there is room for; whether anything changed."""
        if self.done or not (self._channel.closed or self._channel.send_ready()):
            return False
        try:
            if not self._pending:
                self._pending = memoryview(next(self._chunks, b""))
            if self._pending:
                self._pending = self._pending[self._channel.send(bytes(self._pending[:_CHUNK])) :]
            else:
                self.done = True
                self._channel.shutdown_write()
        except (OSError, EOFError):
            # The command has ended without reading it all: its exit status tells why.
            self.done = True
        return True


def _chunks(stdin: bytes | IO[bytes] | None) -> Iterator[bytes]:
    if isinstance(stdin, bytes):
        yield stdin
    elif stdin is not None:
        while chunk := stdin.read(_CHUNK):
            yield chunk
