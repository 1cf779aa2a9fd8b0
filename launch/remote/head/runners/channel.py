"""The supervisor's end of a runner's channel."""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, Any

from launch.remote.base import frames

if TYPE_CHECKING:
    import socket

__all__ = ["DONE", "GOING", "GREETED", "NEW", "READY", "STARTED", "Link"]

_CHUNK = 262144
_LONGEST = 1 << 20
"""Bytes of a frame from a runner at most: output comes in pieces of 128 KiB."""

NEW, GREETED, READY, GOING, STARTED, DONE = range(6)
"""How far a runner is: its HELLO came, it is ready, it was told to start, its ranks run, it has nothing more
to do."""
_ONCE_GREETED = (GREETED, READY, GOING, STARTED, DONE)
_WHEN = {
    frames.HELLO: (NEW,),
    frames.HELD: (GREETED,),
    frames.READY: (GREETED,),
    frames.BUSY: (GREETED,),
    frames.FAILED: (GREETED, READY, GOING),
    frames.STARTED: (GOING,),
    frames.EXIT: (GOING, STARTED),  # before STARTED, where a later rank of the node could not be started
    frames.DONE: (GREETED, READY, GOING, STARTED),
    frames.EVICTION: _ONCE_GREETED,
    frames.OUT: _ONCE_GREETED,
    frames.NOTE: _ONCE_GREETED,
    frames.TAIL: _ONCE_GREETED,
    frames.BEAT: _ONCE_GREETED,
}
"""When a runner may send what."""


class Link:
    """One runner: its channel, and what is known of it.

    ``process`` is the ssh client (or, on the head, the runner itself) behind the channel; links that
    mpirun's runners opened have ``connection`` instead.
    """

    def __init__(
        self,
        node: int,
        process: subprocess.Popen[bytes] | None = None,
        connection: socket.socket | None = None,
    ) -> None:
        self.node = node
        self.process, self.connection = process, connection
        self.ranks: list[int] = []
        self.ended: set[int] = set()
        self.stage = NEW
        self.open = True
        self.heard = time.monotonic()
        self.took = 0
        """Bytes that the last :meth:`receive` brought."""
        self._decoder = frames.Decoder(_LONGEST)
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
    def greeted(self) -> bool:
        """Whether it has introduced itself."""
        return self.stage != NEW

    @property
    def done(self) -> bool:
        """Whether it has nothing more to do."""
        return self.stage == DONE

    def check(self, kind: bytes, rank: int | None = None) -> None:
        """Whether a frame of that type may come now, about that rank; -1 is its node, None no rank at all.

        Raises :class:`~launch.remote.base.frames.ProtocolError`.
        """
        if self.stage not in _WHEN.get(kind, ()):
            raise frames.ProtocolError(f"a frame of type {kind!r} at the wrong time")
        if rank is not None and rank not in (-1, *self.ranks):
            raise frames.ProtocolError(f"a frame of type {kind!r} for rank {rank}, which is another runner's")

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
        self.send_payload(kind, frames.pack(fields) if fields is not None else b"")

    def send_payload(self, kind: bytes, payload: bytes) -> None:
        """Send one frame whose payload is packed, or encrypted, already."""
        self._outgoing += frames.frame(kind, payload)
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

        Raises :class:`~launch.remote.base.frames.ProtocolError`.
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
