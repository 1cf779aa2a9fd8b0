"""The supervisor's end of a runner's channel."""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, Any

from launch.remote import protocol

if TYPE_CHECKING:
    import socket

__all__ = ["Link"]

_CHUNK = 262144


class Link:
    """One runner: its channel, and what is known of it.

    ``process`` is the ssh client (or, on the head, the runner itself) behind the channel; links that
    mpirun's runners opened have ``connection`` instead.
    """

    def __init__(
        self,
        node: int | None,
        process: subprocess.Popen[bytes] | None = None,
        connection: socket.socket | None = None,
    ) -> None:
        self.node = node
        self.process, self.connection = process, connection
        self.ranks: list[int] = []
        self.ended: set[int] = set()
        self.greeted = self.done = False
        self.open = True
        self.heard = time.monotonic()
        self.took = 0
        """Bytes that the last :meth:`receive` brought."""
        self._decoder = protocol.Decoder()
        self._outgoing = bytearray()
        if process is not None:
            assert process.stdin is not None  # noqa: S101  both are pipes by construction
            assert process.stdout is not None  # noqa: S101
            self.reading, self.writing = process.stdout.fileno(), process.stdin.fileno()
        else:
            assert connection is not None  # noqa: S101
            self.reading = self.writing = connection.fileno()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    @property
    def missing(self) -> list[int]:
        """Ranks given to this runner of which no end is known."""
        return [rank for rank in self.ranks if rank not in self.ended]

    @property
    def is_waiting(self) -> bool:
        """Whether something came that has not been read."""
        poll = select.poll()
        poll.register(self.reading, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, kind: bytes, fields: dict[str, Any] | None = None) -> None:
        """Sends one frame, or as much of it as the channel takes now; :meth:`flush` sends the rest."""
        self._outgoing += protocol.frame(kind, protocol.pack(fields) if fields is not None else b"")
        self.flush()

    def flush(self) -> None:
        """Sends what is waiting."""
        while self._outgoing and self.open:
            try:
                sent = os.write(self.writing, self._outgoing[:_CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self._outgoing.clear()  # its end shows when reading
                return
            del self._outgoing[:sent]

    def receive(self) -> list[tuple[bytes, bytes]]:
        """The frames that came; at the channel's end :attr:`open` becomes False.

        Raises :class:`~launch.remote.protocol.ProtocolError`.
        """
        try:
            data = os.read(self.reading, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.took = len(data)
        if not data:
            self.open = False
            return []
        self.heard = time.monotonic()
        return self._decoder.feed(data)

    def close(self) -> None:
        """Lets go of the channel; a runner that is still there takes that as the order to end everything."""
        self.open = False
        if self.connection is not None:
            self.connection.close()
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        continue

    def kill(self) -> None:
        """Ends the ssh client; its runner notices that its tether is gone."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    def wait(self, seconds: float) -> None:
        """Waits for the ssh client's end, which is made to come after ``seconds``."""
        if self.process is None:
            return
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
