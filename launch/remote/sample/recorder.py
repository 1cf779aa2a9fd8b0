"""The files of a launch's samples in the job's folder, written by its supervisor.

samples.json has the newest samples, history.json the job's course. Both together have at most 8 MiB, however
long the job runs on 300 nodes of eight ranks; a full disk loses samples, never the job.
"""

from __future__ import annotations

import time
from contextlib import suppress

from launch.remote.base import timing
from launch.remote.base.files import replace_file
from launch.remote.base.frames import ProtocolError
from launch.remote.sample import stored_samples
from launch.remote.sample.history import HistoryRecorder
from launch.remote.sample.live_samples import LiveSamples

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from launch.remote.sample.sample_records import History, Sample

__all__ = ["SampleRecorder"]

_GATHER_S = 0.05
"""Time from the first sample to the file, in which samples that come together get into one version."""
_HISTORY_S = 10.0
"""Shortest time between two versions of history.json."""
_PROCESSOR_SHARE, _TIME_SHARE = 8.0, 2.0
"""Shortest interval of a file in times of what its last version took of the processor, and on the clock: one
of many nodes, or on a slow disk, is renewed less often, for the supervisor has more to do."""


class SampleRecorder:
    """Records the samples of launch ``attempt`` in the job's ``folder``."""

    def __init__(self, folder: str, attempt: int) -> None:
        self._folder = folder
        self._samples = LiveSamples(attempt)
        self._clock = _SteadyClock()
        self._history = _history_after(folder, attempt)
        self._live_at: float | None = None
        """Time of the next version, by the monotonic clock; None without a change."""
        self._live_from = 0.0
        self._history_from = time.monotonic() + _HISTORY_S

    def add(self, node: str, ranks: Collection[int], sample: Sample) -> None:
        """Record a sample from a runner of these ranks. Raise ProtocolError for one of another rank."""
        for rank in sample["ranks"]:
            if rank["rank"] not in ranks:
                raise ProtocolError(f"a sample of rank {rank['rank']}, which is another runner's")
        self._samples.add(node, sample, time.time())
        self._history.add(node, sample, self._clock.now())
        self._note_change()

    def end_rank(self, rank: int) -> None:
        """Record that a rank has ended."""
        self._samples.end([rank], time.time())
        self._note_change()

    def _note_change(self) -> None:
        if self._live_at is None:
            self._live_at = max(time.monotonic() + _GATHER_S, self._live_from)

    def write_due(self, now: float) -> float:
        """Write what is due at ``now``, by the monotonic clock; return when the next file is."""
        if self._live_at is not None and now >= self._live_at:
            self._live_at = None
            self._live_from = now + max(timing.SAMPLE_WRITE_S, self._write_live())
        if now >= self._history_from:
            self._history_from = now + max(_HISTORY_S, self._write_history())
        return self._history_from if self._live_at is None else min(self._live_at, self._history_from)

    def close(self) -> None:
        """Write both files at the launch's end."""
        self._history.end(self._clock.now())
        self._write_live()
        self._write_history()

    def _write_live(self) -> float:
        """Write the newest samples; return the seconds until they may be written again."""
        return self._write(stored_samples.LIVE, self._samples.as_json)

    def _write_history(self) -> float:
        """Write the course; return the seconds until it may be written again."""
        return self._write(stored_samples.HISTORY, self._history.as_json)

    def _write(self, name: str, make: Callable[[], bytes]) -> float:
        begun, spent = time.monotonic(), time.thread_time()
        with suppress(OSError):  # the disk is full, or the folder was removed: the next samples may fit
            replace_file(f"{self._folder}/{name}", make(), outlives_machine=False)
        spent = time.thread_time() - spent
        return max(_PROCESSOR_SHARE * spent, _TIME_SHARE * (time.monotonic() - begun))


class _SteadyClock:
    """The time of day at a launch's beginning, and what has passed since: a course has no interval twice, nor
    a gap, where the head's clock is set meanwhile."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Return Unix seconds."""
        return self._offset + time.monotonic()


def _history_after(folder: str, attempt: int) -> HistoryRecorder:
    """Return a recorder that goes on after the launches before; without their course, one that begins."""
    now = time.time()
    before: History | None = stored_samples.history(folder) if attempt else None
    try:
        return HistoryRecorder(attempt, now, before)
    except (LookupError, TypeError, ValueError, AttributeError):
        return HistoryRecorder(attempt, now)
