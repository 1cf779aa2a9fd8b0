"""Data path of the load balancer: TCP from a port of this machine to a node, inside the netns process.

The listening sockets were bound outside the network's namespaces and keep listening there; connections to
nodes are made from within, so that a link that is down cuts the operator's traffic, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

__all__ = ["Forward"]

_BACKLOG = 1024
_RESET = struct.pack("ii", 1, 0)
_PAUSE_ABOVE = 1 << 20


class Forward:
    """One listening port and the connections that came through it."""

    def __init__(self, listener: socket.socket, target: tuple[str, int], alive: Callable[[], bool]) -> None:
        self._listener, self._target, self._alive = listener, target, alive
        self._ends: set[_End] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._paused = False
        listener.setblocking(False)

    @property
    def target(self) -> tuple[str, int]:
        """Private address and port."""
        return self._target

    def open(self) -> None:
        """Start accepting."""
        self._paused = False
        self._listener.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def pause(self) -> None:
        """Stop accepting: with one connection in the queue, the kernel does not answer further requests.

        A client's connect then times out, as when Azure's load balancer sends to a lost VM.
        """
        self._paused = True
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.listen(0)

    def reset(self) -> None:
        """Reset the open connections; new ones are accepted."""
        for task in self._connecting:
            task.cancel()
        for end in tuple(self._ends):
            end.reset()

    def close(self) -> None:
        """End everything."""
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        for _ in range(64):
            try:
                client, _peer = self._listener.accept()
            except OSError:
                return  # nothing more waits, or the client has gone
            client.setblocking(False)
            if not self._alive():
                _reset_now(client)
                continue
            task = asyncio.get_running_loop().create_task(self._connect(client))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        inside, outside = _End(self._ends), _End(self._ends)
        inside.other, outside.other = outside, inside
        try:
            await loop.create_connection(lambda: inside, *self._target)
        except (OSError, asyncio.CancelledError):
            _reset_now(client)
            return
        await loop.connect_accepted_socket(lambda: outside, client)
        if inside not in self._ends:  # the node closed before the client's end was ready
            outside.finish()


class _End(asyncio.Protocol):
    """One of the two ends of a forwarded connection; what arrives here leaves by the other."""

    other: _End

    def __init__(self, register: set[_End]) -> None:
        self._register = register
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._early_eof = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        transport.set_write_buffer_limits(high=_PAUSE_ABOVE)
        self._register.add(self)
        for data in self._early:
            transport.write(data)
        if self._early_eof:
            self.finish()

    def data_received(self, data: bytes) -> None:
        self.other.send(data)
        # Azure's load balancer ends no connection: nothing there delays acknowledgements, as Linux would.
        assert self._transport is not None  # noqa: S101
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def eof_received(self) -> bool:
        self._ended = True
        self.other.finish()
        return not self.other._ended  # keep this direction open until the other has ended too

    def connection_lost(self, exc: Exception | None) -> None:
        self._register.discard(self)
        transport = self.other._transport
        if transport is None or transport.is_closing():
            return
        if exc is not None:
            self.other.reset()
        else:
            transport.close()

    def pause_writing(self) -> None:
        if self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other._transport is not None and not self.other._transport.is_closing():
            self.other._transport.resume_reading()

    def send(self, data: bytes) -> None:
        """Pass bytes on; kept while this end's connection is not made yet."""
        if self._transport is None:
            self._early.append(data)
        else:
            self._transport.write(data)

    def finish(self) -> None:
        """Half-close: nothing more is sent to this end."""
        if self._transport is None:
            self._early_eof = True
        elif self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def reset(self) -> None:
        """Send a reset, as the peer's would be."""
        if self._transport is None:
            return
        found = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()


def _reset_now(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.close()
