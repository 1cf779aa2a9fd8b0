"""Loopback ports that serve the user who rehearses, and nobody else on the machine.

The caller is identified at ``accept``, before a byte is read: another user's connection is reset at once, so
that it holds no memory, no time and no place in a queue, whatever it sends or does not send.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from launch.errors import RetryError
from rehearsal.peer_check import is_own
from rehearsal.run_dir import short_path

__all__ = ["Listener", "bound", "loopback_port", "relay_to"]

_BACKLOG = 1024
_AT_ONCE = 16
"""Connections accepted before other work has its turn."""
_BLOCK = 1 << 16
_RESET = struct.pack("ii", 1, 0)
_QUIET_S = 60.0
"""Between two lines of the log on refused connections, which whoever is refused must not fill."""

_log = logging.getLogger("rehearsal.listener")

Serve = Callable[[socket.socket], Awaitable[object]]
"""Takes over one connection of this user's."""


def bound(address: tuple[str, int], purpose: str) -> socket.socket:
    """Return a socket that listens at ``address``, port 0 for a free one.

    Raises :class:`~launch.errors.RetryError`, which gives the port's ``purpose``, when a program has it.
    """
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)  # binding alone is refused only where somebody listens already
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise RetryError(
            f"port {address[1]} of {address[0]}, {purpose}, is taken by another program on this machine: "
            f"`ss -ltnp src {address[0]}:{address[1]}` shows which; end that, then repeat the command"
        ) from None
    return listener


def loopback_port(port: int = 0) -> socket.socket:
    """Return a socket that listens at a port of 127.0.0.1, by default a free one."""
    return bound(("127.0.0.1", port), "the port that the rehearsal was given")


class Listener:
    """A port of 127.0.0.1 whose connections ``serve`` takes over: that of ``own``, or a free one."""

    def __init__(self, serve: Serve, own: socket.socket | None = None) -> None:
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported = -math.inf
        self._socket = own or loopback_port()
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Start to accept connections."""
        self._socket.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Give the port back and end what ``serve`` still does."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # nothing more waits, or the client has gone
            client.setblocking(False)
            if not is_own(client):
                self._refuse(client)
                continue
            task = asyncio.get_running_loop().create_task(self._take(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _refuse(self, client: socket.socket) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._reported > _QUIET_S:
            self._reported = now
            _log.warning("refused a connection to port %d: it is not of this user", self.port)
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        client.close()

    async def _take(self, client: socket.socket) -> None:
        try:
            await self._serve(client)
        except OSError as error:
            _log.warning("a connection to port %d broke: %s", self.port, error)
            client.close()


def relay_to(path: Path) -> Serve:
    """Return what passes a connection on to the Unix socket at ``path``, in a folder of this user's alone."""

    async def serve(client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            there, back = await _connect(path)
            try:
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
            finally:
                back.close()
        finally:
            writer.close()

    return serve


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    upstream = socket.socket(socket.AF_UNIX)
    try:
        upstream.setblocking(False)
        upstream.bind("")  # a name of its own, by which the server distinguishes connections
        with short_path(path) as name:
            await asyncio.get_running_loop().sock_connect(upstream, name)
    except BaseException:
        upstream.close()
        raise
    return await asyncio.open_connection(sock=upstream)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while block := await source.read(_BLOCK):
            target.write(block)
            await target.drain()
    with contextlib.suppress(OSError):  # the other side may have closed both directions
        if target.can_write_eof():
            target.write_eof()
