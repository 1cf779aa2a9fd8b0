"""The bytes of one remote command: without threads, without polling while nothing is sent, binary safe.

Invoke starts three threads a command, checks every 10 ms whether it has ended and reads 1000 bytes at a time.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any

from paramiko import Channel

from launch.errors import InputError
from launch.remote.base import timing

__all__ = ["KEPT_BYTES", "DeadlinePassed", "Tail", "exchange"]

_POLL_S = 0.005
_STATUS_POLL_S = 0.1
_CHUNK = 1 << 18
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


KEPT_BYTES = 1 << 20
"""Bytes kept of output that is not read as it comes, of each stream of each node."""


class Tail:
    """The last :data:`KEPT_BYTES` of a stream, and the number of bytes before them."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        """Append ``data``; discard what is beyond the limit."""
        self._kept += data
        if len(self._kept) > 2 * KEPT_BYTES:  # not at every piece: each cut moves the rest
            self._cut()

    def end(self) -> bytes:
        """Return the end of the stream; from here on :attr:`left_out` is exact."""
        self._cut()
        return bytes(self._kept)

    def _cut(self) -> None:
        over = len(self._kept) - KEPT_BYTES
        if over > 0:
            self.left_out += over
            del self._kept[:over]


class DeadlinePassed(Exception):
    """The caller's time limit has passed."""


class _SafeSignals:
    """Handlers of signals, called between calls of paramiko only.

    An exception from a handler inside one leaves a lock of its transport taken (bugs.python.org/issue29988),
    and the end of the connection then waits for that lock without end.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._arrived: list[int] = []
        self._is_safe = False

    def __enter__(self) -> _SafeSignals:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            if getattr(signal.getsignal(number), "__self__", None) is self:  # a handler may have set another
                signal.signal(number, handler)
        self._call()

    def _keep(self, number: int, frame: FrameType | None) -> None:
        if self._is_safe:
            self._handlers[number](number, frame)
        else:
            self._arrived.append(number)

    def _call(self) -> None:
        while self._arrived:
            number = self._arrived.pop(0)
            self._handlers[number](number, None)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Call the handlers of signals that have arrived, and of those that arrive in the block."""
        self._is_safe = True
        try:
            self._call()
            yield
        finally:
            self._is_safe = False


def exchange(
    channel: Channel,
    on_stdout: Callable[[bytes], object],
    stdin: bytes | IO[bytes] | int | None,
    deadline: float | None,
    ask_alive: Callable[[], None],
) -> Tail:
    """Send ``stdin`` and pass stdout on until the command has ended; return the end of stderr.

    A number is a file descriptor, which may have nothing to read for as long as it likes.
    ``deadline`` is in :func:`time.monotonic`'s seconds. ``ask_alive`` is called after a silence of
    ``OPERATOR_SILENT_S`` and raises when the node is lost. Exceptions of ``on_stdout`` and ``stdin`` pass.

    Raises :class:`DeadlinePassed`.
    """
    stderr = Tail()
    ready = select.poll()
    ready.register(channel.fileno(), select.POLLIN)
    received = time.monotonic()
    with _SafeSignals() as signals:
        feed = _Feed(channel, stdin, signals)

        def pass_on(data: bytes) -> None:
            with signals.handled():
                on_stdout(data)

        while True:
            with signals.handled():
                pass
            # Check for the end first: all data before it is in the buffers by then.
            ended = channel.closed or (channel.eof_received and channel.status_event.is_set())
            moved = _receive(channel, pass_on, stderr) or feed.push()
            now = time.monotonic()
            if ended and not moved:
                return stderr
            if deadline is not None and now > deadline:
                raise DeadlinePassed
            if moved:
                received = now
                continue
            if now - received > timing.OPERATOR_SILENT_S:
                with signals.handled():
                    ask_alive()
                received = time.monotonic()
            # paramiko wakes us for what arrives, not for room to send.
            waits = feed.waits_for is not None and not channel.eof_received
            patience = timing.OPERATOR_SILENT_S if feed.done or waits else _POLL_S
            if deadline is not None:
                patience = min(patience, deadline - now)
            if channel.eof_received:
                # Its descriptor stays readable from here on; only the status, or the close, is missing.
                channel.status_event.wait(max(0.001, min(patience, _STATUS_POLL_S)))
                continue
            descriptor = feed.waits_for
            if descriptor is not None:
                ready.register(descriptor, select.POLLIN)
            with signals.handled():
                ready.poll(max(1.0, patience * 1000))
            if descriptor is not None:
                ready.unregister(descriptor)


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
    """The data that is still to be sent."""

    def __init__(
        self, channel: Channel, stdin: bytes | IO[bytes] | int | None, signals: _SafeSignals
    ) -> None:
        self._channel, self._signals = channel, signals
        self._descriptor = stdin if isinstance(stdin, int) else None
        self._chunks = iter(()) if isinstance(stdin, int) else _chunks(stdin)
        self.waits_for: int | None = None
        """The descriptor that has nothing to read, while there is nothing else to send."""
        self._pending = memoryview(b"")
        self.done = False

    def push(self) -> bool:
        """Send as much as there is room for; return whether anything changed."""
        if self.done or not (self._channel.closed or self._channel.send_ready()):
            return False
        try:
            if not self._pending:
                with self._signals.handled():
                    self._pending = memoryview(self._next())
            if self.waits_for is not None:
                return False
            if self._pending:
                self._pending = self._pending[self._channel.send(bytes(self._pending[:_CHUNK])) :]
            else:
                self.done = True
                self._channel.shutdown_write()
        except (OSError, EOFError):
            # The command has ended without reading all of it: its exit status shows why.
            self.done = True
        return True

    def _next(self) -> bytes:
        if self._descriptor is None:
            return next(self._chunks, b"")
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        self.waits_for = None if waiting.poll(0) else self._descriptor
        try:
            return b"" if self.waits_for is not None else os.read(self._descriptor, _CHUNK)
        except OSError as error:
            raise InputError(
                "stdin", None, f"cannot be read: {error.strerror}", "check what is behind <"
            ) from None


def _chunks(stdin: bytes | IO[bytes] | None) -> Iterator[bytes]:
    if isinstance(stdin, bytes):
        yield stdin
    elif stdin is not None:
        while chunk := stdin.read(_CHUNK):
            yield chunk
