"""The runner's side of a DEBUG order: the child that looks at its ranks, and the answer in bounded pieces."""

from __future__ import annotations

import os
import sys
import time

from launch.remote.base import frames, processes, timing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.debug.debug_records import DebugOrder, Stacks

__all__ = ["DebugChild"]

_MAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__main__.py")
_CHUNK = 65536


class DebugChild:
    """A child that reports on the ``running`` ranks, by their pids; :meth:`step` is called over and over.

    ``started_in`` returns what a daemon has started the rank of a pid in, None where none does.
    """

    def __init__(
        self, payload: bytes, running: dict[int, int], started_in: Callable[[int], str] | None = None
    ) -> None:
        order: DebugOrder = frames.unpack(payload)
        order["ranks"], order["pids"] = list(running), list(running.values())
        order["containers"] = [started_in(pid) if started_in else "" for pid in running.values()]
        self._request = order["request"]
        until = time.monotonic() + timing.DEBUG_CHILD_S  # its interpreter's start is part of the child's time
        order["until_ms"] = int(until * 1000)
        self._until = until + timing.DEBUG_LATE_S
        self._output = bytearray()
        word = frames.pack(order).decode("utf-8", "surrogateescape")
        argv = [sys.executable or "python3", "-I", "-S", _MAIN, "rank-stacks", word]
        self.pid, self.fd, self._errors = processes.spawn(argv, dict(os.environ), "/")

    def step(self, send: Callable[[bytes, Stacks], object]) -> DebugChild | None:
        """Take what the child has printed; once that is all, send the answer and return None."""
        is_late = time.monotonic() > self._until
        while not is_late:
            try:
                data = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                return self
            if not data:
                break
            self._output += data
            is_late = len(self._output) > timing.DEBUG_PIECES * timing.DEBUG_PIECE
        processes.kill(self.pid, processes.SIGKILL)
        os.close(self.fd)
        os.close(self._errors)
        for piece in self._pieces(b"" if is_late else bytes(self._output)):
            send(frames.STACKS, piece)
        return None

    def _pieces(self, output: bytes) -> list[Stacks]:
        size = timing.DEBUG_PIECE
        cut = [output[at : at + size] for at in range(0, len(output), size)] or [b""]
        return [
            {"request": self._request, "part": part, "of": len(cut), "text": data.decode("ascii", "replace")}
            for part, data in enumerate(cut)
        ]
