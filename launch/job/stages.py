"""What is brought to the nodes before a job is submitted, as phases of the job."""

from __future__ import annotations

import time

from launch.remote.base.phase_records import Phase, PhaseName

__all__ = ["Stages"]


class Stages:
    """Durations of the stages so far, by this machine's monotonic clock."""

    def __init__(self) -> None:
        self._ended: list[tuple[PhaseName, float, float, int]] = []

    def now(self) -> float:
        """Return the time at which a stage begins."""
        return time.monotonic()

    def add(self, phase: PhaseName, begun: float, moved: int = 0) -> None:
        """Note that a stage has ended, and the number of bytes that it moved."""
        self._ended.append((phase, begun, self.now(), moved))

    def before_submit(self) -> tuple[Phase, ...]:
        """Return the stages in seconds since now: the head's clock may differ from this machine's."""
        now = self.now()
        return tuple(
            {
                "phase": phase,
                "start": round(start - now, 3),
                "end": round(end - now, 3),
                "bytes": moved,
                "verdict": "",
            }
            for phase, start, end, moved in self._ended
        )
