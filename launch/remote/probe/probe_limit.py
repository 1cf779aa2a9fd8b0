"""The time limits of a probe: it goes on as long as its processes move, up to a limit for all of it."""

from __future__ import annotations

from launch.remote.base import timing

__all__ = ["ProbeLimit"]

_BUSY_PERMILLE = 30
"""Of a processor, in one sample: two ticks of its clock. PyTorch's threads that only poll take one now and
then."""


class ProbeLimit:
    """Judges whether a probe goes on, by what its processes print and use; times are monotonic."""

    def __init__(self) -> None:
        self._since: float | None = None
        """When all of them ran."""
        self._moved = self._sampled = float("-inf")
        self._memory: dict[int, int] = {}

    def on_output(self, now: float) -> None:
        """Note that a process has printed."""
        self._moved = now

    def on_usage(self, rank: int, cpu_permille: int, memory: int, now: float) -> None:
        """Note what a rank's processes have used of a processor since the sample before, and their memory."""
        self._sampled = now
        if cpu_permille >= _BUSY_PERMILLE or self._memory.get(rank) != memory:  # it reads from a slow disk
            self._moved = now
        self._memory[rank] = memory

    def over(self, now: float, *, all_run: bool) -> str:
        """Return why the probe has to end; empty as long as it may go on."""
        if self._since is None:
            self._since = now if all_run else None
            return ""
        if now - self._since > timing.PROBE_S:
            return f"it did not end within {timing.PROBE_S:g} s"
        still = now - max(self._since, self._moved)
        is_known = now - self._sampled < timing.PROBE_SAMPLE_S
        if is_known and still > timing.PROBE_STILL_S:
            return f"none of its processes has printed or used its processor for {still:.0f} s"
        return ""
