"""Whether jobs run on a node, and since when none does, as its watch sees it.

The watch outlives the code that comes with pushes, so this reads what that leaves on the disk and in locks:
``slots/`` of :mod:`launch.remote.workplace`, ``queue.json`` of :mod:`launch.remote.turns`, ``jobs/``.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Activity", "end_jobs", "replace"]


class Activity:
    """What goes on in a ``~/.ranklift``; the time of the last is kept in the file ``active`` there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._stamp: int | None = None
        self.is_busy = False
        """Whether a job would miss this node; one that only waits for its turn would not."""

    def look(self) -> float:
        """Seconds since a job ran or waited here, as far as is known; 0 when one does."""
        queue, now = self._queue(), time.monotonic()
        self.is_busy = any(entry.get("slots") for entry in queue) or self._slots_are_held()
        before, self._stamp = self._stamp, self._changed()
        if queue or self.is_busy or before not in (None, self._stamp):
            return self._note(now)
        try:
            with open(f"{self._folder}/active", encoding="ascii") as file:
                since = float(file.read())
        except (OSError, ValueError):
            return self._note(now)
        return now - since if since <= now else now  # it is from before this boot

    def jobs(self) -> list[str]:
        """The ids of the jobs with their head here that wait or run."""
        return [entry["job"] for entry in self._queue()]

    def _note(self, now: float) -> float:
        replace(f"{self._folder}/active", f"{now:.3f}")
        return 0.0

    def _changed(self) -> int:
        """When the queue was last another one: a job may come and go between two looks."""
        try:
            return os.stat(f"{self._folder}/queue.json").st_mtime_ns
        except OSError:
            return 0

    def _queue(self) -> list[dict[str, Any]]:
        try:
            with open(f"{self._folder}/queue.json", encoding="utf-8") as file:
                return [entry for entry in json.load(file) if _is_alive(entry["process"])]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def _slots_are_held(self) -> bool:
        """Takes each lock for a moment, under the guard that runners take as well."""
        folder = f"{self._folder}/slots"
        try:
            guard = os.open(f"{folder}/guard", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False  # no job was ever here
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(folder):
                if name.isdigit():
                    fd = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC)
                    try:
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    finally:
                        os.close(fd)
        except OSError:
            return True  # somebody has it
        finally:
            os.close(guard)
        return False


def _is_alive(process: dict[str, Any]) -> bool:
    """Whether the process still runs that :func:`launch.remote.jobs.identity` described."""
    try:
        with open(f"/proc/{int(process['pid'])}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == process["started"] and fields[0] not in (b"Z", b"X")


def replace(path: str, text: str) -> bool:
    """Puts a file there whole, or leaves what is there: a full disk is no error; whether it is there."""
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, path)
    except OSError:
        return False
    return True


def end_jobs(folder: str, within_s: float, reason: str) -> int:
    """Asks for the end of every job with its head here, in its own grace but within so many seconds.

    Gives how many there are that nobody had asked to end.
    """
    asked = 0
    for job in Activity(folder).jobs():
        place = f"{folder}/jobs/{job}"
        try:
            with open(f"{place}/job.json", encoding="utf-8") as file:
                grace = min(float(json.load(file)["grace_s"]), within_s)
        except (OSError, ValueError, KeyError):
            continue
        if not os.path.exists(f"{place}/cancel"):
            asked += replace(f"{place}/cancel", f"{grace:g}\n{reason}")
    return asked
