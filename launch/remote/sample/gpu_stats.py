"""Figures of GPUs, from NVIDIA's driver by its library NVML; names and values are those of ``nvml.h``.

A call to NVML may take a tenth of a second, and never return where a GPU hangs: a process of its own makes
them, the command ``sample-gpus``, and its runner reads what has come.
"""

from __future__ import annotations

import os
import sys

from launch.remote.base import frames, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.sample.sample_records import GpuSample

__all__ = ["GpuFeed"]

_MAIN = os.path.dirname(os.path.dirname(__file__)) + "/__main__.py"
_FRESH_S = 3.0
"""Age of the newest figures from which the GPUs' are unknown."""
_HANGS_S = 60.0
"""Silence after which the process is ended: the driver unloads with its last program on some nodes, and takes
30 s to come back with eight A100 (Azure/aks-gpu#105)."""
_LONGEST = 1 << 16
_CHUNK = 1 << 16


class GpuFeed:
    """The process that queries the GPUs, as its runner sees it: ``argv`` starts it, unless it is the command
    itself. It belongs to ``job`` for all that ends a job's processes. Times are in seconds of one monotonic
    clock."""

    def __init__(self, job: str, now: float, argv: list[str] | None = None) -> None:
        command = argv or [sys.executable or "python3", "-I", "-S", _MAIN, "sample-gpus"]
        env = {**os.environ, "RANKLIFT_JOB_ID": job}
        self.pid, self._out, self._err = processes.spawn(command, env, "/")
        self._is_open = True
        self._decoder = frames.Decoder(_LONGEST)
        self._gpus: list[GpuSample] = []
        self._last = now

    def newest(self, now: float) -> list[GpuSample]:
        """Return the GPUs' newest figures; none where these are old."""
        if self._is_open:
            try:
                self._read(now)
            except (frames.ProtocolError, KeyError, TypeError):
                self.close()
        if self._is_open and now - self._last > _HANGS_S:
            self.close()
        return self._gpus if now - self._last <= _FRESH_S else []

    def _read(self, now: float) -> None:
        _drain(self._err)  # the driver's library may print
        data = _drain(self._out)
        for _, payload in self._decoder.feed(data or b""):
            self._gpus, self._last = frames.unpack(payload)["gpus"], now
        if data is None:
            self.close()

    def close(self) -> None:
        """End the process. One that hangs in the driver stays, and is reported with the ranks' processes."""
        if self._is_open:
            self._is_open = False
            os.close(self._out)
            os.close(self._err)
            processes.kill(self.pid, processes.SIGKILL)


def _drain(pipe: int) -> bytes | None:
    """Return what a pipe holds, at most a chunk; None at its end."""
    try:
        return os.read(pipe, _CHUNK) or None
    except BlockingIOError:
        return b""
