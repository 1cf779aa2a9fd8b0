"""Ending a launch: the first outcome counts, and everything that still runs is told to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from launch.remote.base import frames
from launch.remote.base.processes import SIGTERM
from launch.remote.head.first_failure import Failures

if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.head.outcome import Outcome
    from launch.remote.head.runners.channel import Link
    from launch.remote.head.runners.runner_pool import Crew

__all__ = ["Stopping"]

_SLACK = 4.0
"""Seconds after the grace until runners that have not reported their end are cut off."""
_MPIRUN_SLACK = 4.0
"""Seconds mpirun gets to end after the last runner; it takes its time after an MPI_Abort."""


class Stopping:
    """``grace`` is the job's time between SIGTERM and SIGKILL, in seconds."""

    def __init__(self, crew: Crew, grace: float) -> None:
        self.verdict: Outcome | None = None
        self.failures = Failures()
        self.cut_off = False
        """Whether what is still there is waited for no longer."""
        self._crew, self._grace = crew, grace
        self._since: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the ranks have been told to end."""
        return self._since is not None

    def fail(self, outcome: Outcome, grace: float | None = None) -> None:
        """The first outcome is the launch's; everything still running is told to end."""
        if self.verdict is None:
            self.verdict = self.failures.first or outcome
        self.stop(grace)

    def stop(self, grace: float | None = None) -> None:
        """Tells everything to end; asked again, a shorter ``grace`` than the one before counts."""
        wanted = self._grace if grace is None else grace
        if self._since is not None and (grace is None or wanted >= self._grace):
            return
        self._grace = wanted
        first = self._since is None
        if first:
            self._since = time.monotonic()
        self._crew.to_start.clear()
        told = self._crew.tell(frames.STOP, {"grace_ms": int(wanted * 1000)})
        if first and not told and self._crew.mpirun is not None:
            self._crew.mpirun.signal(SIGTERM)

    def press(self, now: float, lose: Callable[[Link, str], None]) -> None:
        """Once the grace is over: whatever is still there goes."""
        if self._since is None:
            return
        over = now - self._since - self._grace
        if over > _SLACK:
            for link in self._crew.open_links:
                if not link.done:
                    lose(link, "its processes did not end")
        if over > _SLACK + _MPIRUN_SLACK and self._crew.mpirun is not None:
            self._crew.mpirun.signal(SIGTERM)
        self.cut_off = over > _SLACK + 2 * _MPIRUN_SLACK
