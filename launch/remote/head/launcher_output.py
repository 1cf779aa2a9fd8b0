"""What launchers (mpirun, ssh, a runner) say of themselves, on its way into the job's output."""

from __future__ import annotations

import os
import selectors
import time
from typing import TYPE_CHECKING, Any

from launch.remote.base import frames
from launch.remote.base.rate_limit import Outlet
from launch.remote.log.writer import LAUNCHER, StreamWriter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Words"]

_CHUNK = 65536
_RATE, _BURST = 64 << 10, 1 << 20
"""Bytes a second of each pipe, and at once: a launcher that repeats itself must not fill the head either."""


class Words:
    """Reads launchers' pipes; ``selector``'s keys carry the function to call when there is something."""

    def __init__(self, selector: selectors.BaseSelector, stream: StreamWriter) -> None:
        self.hushed: Callable[[], bool] = lambda: False
        """Whether what comes now is of no use to anybody."""
        self._selector, self._stream = selector, stream
        self._reading: dict[int, Callable[[], None]] = {}

    @property
    def are_coming(self) -> bool:
        """Whether any pipe is still open."""
        return bool(self._reading)

    def listen(self, pipe: Any, node: int, number: int) -> None:
        """From now on reads this pipe of that node's, stdout (1) or stderr (2), to its end."""
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        outlet = Outlet(LAUNCHER, "", _RATE, _BURST, time.monotonic())

        def read() -> None:
            if fd not in self._reading:
                return  # closed earlier in this very turn
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return
            if data and self.hushed():
                return
            if data:
                # prterun sends NUL bytes between its messages
                outlet.take(number, data.replace(b"\0", b""), time.monotonic())
            else:
                outlet.end()
            for kind, payload in frames.Decoder().feed(outlet.frames()):
                self._stream.hear(kind, payload, node, "")
            if not data:
                self._selector.unregister(fd)
                del self._reading[fd]
                pipe.close()

        self._reading[fd] = read
        self._selector.register(fd, selectors.EVENT_READ, read)

    def read_all(self) -> None:
        """Reads whatever is there now."""
        for read in list(self._reading.values()):
            read()
