"""The supervisor's end of a runner's channel."""

from __future__ import annotations

import select
import socket
import subprocess
from contextlib import suppress

from launch.remote.base import frames
from launch.remote.login import Login

__all__ = ["DONE", "GOING", "GREETED", "NEW", "READY", "REFUSED", "STARTED", "Channel"]

_LONGEST = 1 << 20
"""Bytes of a frame from a runner at most: output comes in pieces of 128 KiB."""

NEW, GREETED, READY, GOING, STARTED, DONE, REFUSED = range(7)
"""A runner's stage: connected, HELLO received, READY received, GO sent, its ranks run, nothing left to do; or
HELLO without proof that its node has the cluster's key, after which nothing that it sends counts."""
_ONCE_GREETED = (GREETED, READY, GOING, STARTED, DONE)
_ALLOWED = {
    frames.HELLO: (NEW,),
    frames.HELD: (GREETED,),
    frames.HEALTH: (GREETED,),
    frames.READY: (GREETED,),
    frames.BUSY: (GREETED,),
    frames.FAILED: (GREETED, READY, GOING),
    frames.STARTED: (GOING,),
    frames.EXIT: (GOING, STARTED),  # before STARTED, where a later rank of the node could not be started
    frames.DONE: (GREETED, READY, GOING, STARTED),
    frames.SAMPLE: (STARTED,),
    frames.EVICTION: _ONCE_GREETED,
    frames.OUT: _ONCE_GREETED,
    frames.NOTE: _ONCE_GREETED,
    frames.TAIL: _ONCE_GREETED,
    frames.STACKS: (STARTED, DONE),
    frames.BEAT: (*_ONCE_GREETED, REFUSED),
}
"""Stages in which a runner may send each type of frame."""
_NEXT = {
    frames.HELLO: GREETED,
    frames.READY: READY,
    frames.STARTED: STARTED,
    frames.BUSY: DONE,
    frames.FAILED: DONE,
    frames.DONE: DONE,
}
"""Stage after a frame of each type; the other types leave it as it is."""


class Channel(frames.FrameChannel):
    """One runner's channel, to ``process``, its ssh client (on the head, the runner itself), or, where mpirun
    started it, over ``connection``."""

    def __init__(
        self,
        node: int,
        ranks: list[int],
        process: subprocess.Popen[bytes] | None = None,
        connection: socket.socket | None = None,
    ) -> None:
        self.node, self.ranks = node, ranks
        self.process, self.connection = process, connection
        self.ended: set[int] = set()
        self.stage = NEW
        if process is not None:
            assert process.stdin is not None  # noqa: S101  both are pipes by construction
            assert process.stdout is not None  # noqa: S101
            reading, writing = process.stdout.fileno(), process.stdin.fileno()
        else:
            assert connection is not None  # noqa: S101
            reading = writing = connection.fileno()
        super().__init__(reading, writing, _LONGEST, Login() if process is not None else None)

    @property
    def is_greeted(self) -> bool:
        """Whether the runner's HELLO has come."""
        return self.stage != NEW

    @property
    def is_done(self) -> bool:
        """Whether the runner has nothing left to do."""
        return self.stage >= DONE

    @property
    def unended(self) -> list[int]:
        """Ranks of this runner whose end is not known."""
        return [rank for rank in self.ranks if rank not in self.ended]

    @property
    def has_unread_input(self) -> bool:
        """Whether bytes have come that were not read."""
        poll = select.poll()
        poll.register(self.reading, select.POLLIN)
        return bool(poll.poll(0))

    def accept(self, kind: bytes, rank: int | None = None) -> None:
        """Check that a frame of this type, about this rank (-1: the node, None: no rank), may come now;
        advance the stage. Raise :class:`~launch.remote.base.frames.ProtocolError`."""
        if self.stage not in _ALLOWED.get(kind, ()):
            raise frames.ProtocolError(f"a frame of type {kind!r} at the wrong time")
        if rank is not None and rank not in (-1, *self.ranks):
            raise frames.ProtocolError(f"a frame of type {kind!r} for rank {rank}, which is another runner's")
        self.stage = _NEXT.get(kind, self.stage)

    def send_stop(self, grace: float) -> None:
        """Order the runner to end its ranks within ``grace`` seconds."""
        self.send(frames.STOP, {"grace_ms": int(grace * 1000)})

    def close(self) -> None:
        """Close the channel; a runner that still runs takes that as the order to end everything."""
        self.is_open = False
        if self.connection is not None:
            self.connection.close()
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def kill(self) -> None:
        """Kill the ssh client; its runner notices that its connection is gone."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    def wait(self, seconds: float) -> None:
        """Wait for the ssh client's end; kill the client after ``seconds``."""
        if self.process is None:
            return
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
