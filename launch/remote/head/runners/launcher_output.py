"""What launchers (mpirun, ssh, a runner itself) print, on its way into the job's output."""

from __future__ import annotations

import os
import selectors
import time
from typing import Any

from launch.remote.base import frames
from launch.remote.base.rate_limit import Outlet
from launch.remote.log.writer import LAUNCHER, StreamWriter

__all__ = ["LauncherOutput"]

_CHUNK = 65536
_RATE, _BURST = 64 << 10, 1 << 20
"""Bytes a second of each pipe, and at once: a launcher that repeats itself must not fill the head either."""


class _Pipe:
    def __init__(self, pipe: Any, node: int, number: int) -> None:
        self.pipe, self.node, self.number = pipe, node, number
        self.outlet = Outlet(LAUNCHER, "", _RATE, _BURST, time.monotonic())


class LauncherOutput:
    """Launchers' pipes, registered with ``selector``, this object as the keys' data."""

    def __init__(self, selector: selectors.BaseSelector, stream: StreamWriter) -> None:
        self._selector, self._stream = selector, stream
        self._pipes: dict[int, _Pipe] = {}

    @property
    def is_open(self) -> bool:
        """Whether any pipe is not at its end."""
        return bool(self._pipes)

    def add(self, pipe: Any, node: int, number: int) -> None:
        """Read a pipe of a node's launcher, its stdout (1) or stderr (2), to its end."""
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        self._pipes[fd] = _Pipe(pipe, node, number)
        self._selector.register(fd, selectors.EVENT_READ, self)

    def on_readable(self, fd: int, is_wanted: bool = True) -> None:
        """Write what a ready pipe holds to the stream; discard it unless it ``is_wanted``."""
        source = self._pipes.get(fd)
        if source is None:
            return  # closed earlier in the same turn
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if data and not is_wanted:
            return
        if data:
            # prterun sends NUL bytes between its messages
            source.outlet.take(source.number, data.replace(b"\0", b""), time.monotonic())
        else:
            source.outlet.end()
        for kind, payload in frames.Decoder().feed(source.outlet.frames()):
            self._stream.on_frame(kind, payload, source.node, "")
        if not data:
            self._selector.unregister(fd)
            del self._pipes[fd]
            source.pipe.close()

    def read_all(self, is_wanted: bool = True) -> None:
        """Write what all pipes hold now to the stream."""
        for fd in list(self._pipes):
            self.on_readable(fd, is_wanted)
