"""Whether jobs run on a node, and since when none does, as its agent sees it.

The agent outlives the code that comes with pushes, so this reads what that leaves on the disk and in locks:
``slots/`` of :mod:`launch.remote.node.slots`, ``queue.json`` of :mod:`launch.remote.head.queue`, ``jobs/``.
These belong to the nodes' user, whose jobs may put anything there: a link is not followed, and a pipe or an
endless file does not hold the agent up.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.base.records import Process, QueueEntry

__all__ = ["Activity", "end_jobs", "is_alive", "keep_room", "overwrite", "regular", "replace", "sweep"]

_ROOM = 4096
_ROOM_NAME = ".reserve"
_ANYTHING = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to open a file that may be anything: no link's target is opened, no pipe's writer awaited."""
_MOST_BYTES, _MOST_FILES, _LONGEST_NAME = 16 << 20, 4096, 200


class Activity:
    """Jobs of a ``~/.ranklift``; the time of the last is kept here and, for other processes, in the agent's
    file ``agent/active``.

    A time that cannot be written removes the file, and without any known time the present counts. The file of
    a node that has had no job since its boot has the time of the first look, negative.
    """

    def __init__(self, folder: str, agent: str = "") -> None:
        """``agent`` is the agent's folder, where that is not ``agent`` of ``folder``."""
        self._folder, self._active = folder, f"{agent or folder + '/agent'}/active"
        self._stamp: int | None = None
        self._last: float | None = None
        self.is_busy = False
        """Whether a job would miss this node; one that only waits for its turn would not."""
        self.is_new = False
        """Whether this node, by that file, has had no job since its boot."""

    def look(self) -> float:
        """Return the seconds since a job ran or waited here, as far as is known; 0 when one does."""
        queue, now = self._queue(), time.monotonic()
        self.is_busy = any(entry.get("slots") for entry in queue) or self._slots_are_held()
        before, self._stamp = self._stamp, self._changed()
        self.is_new = False
        if queue or self.is_busy or before not in (None, self._stamp):
            return self._note(now, now)
        written = self._written(now)
        if written is None and self._last is None:
            return self._note(now, -now)
        self.is_new = written is not None and written < 0
        return now - max(abs(since) for since in (self._last, written) if since is not None)

    def jobs(self) -> list[str]:
        """Return the ids of the jobs with their head here that wait or run."""
        return [entry["job"] for entry in self._queue()]

    def _note(self, now: float, entry: float) -> float:
        self._last = now
        overwrite(self._active, entry)
        return 0.0

    def _written(self, now: float) -> float | None:
        try:
            since = float(_read(self._active))
        except (OSError, ValueError):
            return None
        return since if abs(since) <= now else 0.0  # it is from before this boot

    def _changed(self) -> int:
        """Return when the queue last changed: a job may come and go between two looks."""
        try:
            return os.stat(f"{self._folder}/queue.json").st_mtime_ns
        except OSError:
            return 0

    def _queue(self) -> list[QueueEntry]:
        try:
            listed = json.loads(_read(f"{self._folder}/queue.json"))
        except (OSError, ValueError, RecursionError):
            return []
        return list(filter(_waits_or_runs, listed)) if isinstance(listed, list) else []

    def _slots_are_held(self) -> bool:
        """Return whether jobs hold slots; lock each for a moment, under the guard that runners take as well.
        A command that removes this node (:func:`launch.remote.base.names.is_removal`) is not a job."""
        folder = f"{self._folder}/slots"
        try:
            guard = os.open(f"{folder}/guard", os.O_RDONLY | _ANYTHING)
        except OSError:
            return False  # no job was ever here
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with os.scandir(folder) as entries:
                return any(map(_is_held, islice(entries, _MOST_FILES)))
        except OSError:
            return True  # somebody has it
        finally:
            os.close(guard)


def _is_held(slot: os.DirEntry[str]) -> bool:
    """Return whether a job has the lock of a slot's file, which this takes for a moment."""
    if not slot.name.isdigit():
        return False
    fd = os.open(slot.path, os.O_RDONLY | _ANYTHING)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return b" " not in os.read(fd, 200)
    finally:
        os.close(fd)
    return False


def _waits_or_runs(entry: QueueEntry) -> bool:
    """Return whether the entry is of a job whose supervisor is alive; one that is damaged is not."""
    try:
        job = entry["job"]
        is_name = isinstance(job, str) and job.isascii() and job.replace("-", "").isalnum()
        is_name = is_name and len(job) <= _LONGEST_NAME
        return is_name and is_alive(entry["process"]) and _is_supervisor(int(entry["process"]["pid"]))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return False


def _is_supervisor(pid: int) -> bool:
    """Return whether the process was started to supervise a job. A job can name any process as a supervisor,
    also one that lives as long as its node."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"/__main__.py\0submit\0" in file.read(_ROOM)


def regular(path: str, flags: int) -> int:
    """Return a handle of a regular file; an ``opener``. Raise OSError: a job may have put a pipe or a link
    in its place."""
    fd = os.open(path, flags | _ANYTHING, 0o666)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(f"{path} is not a file")


def _read(path: str) -> bytes:
    with open(path, "rb", opener=regular) as file:
        return file.read(_MOST_BYTES)


def is_alive(process: Process) -> bool:
    """Return whether the process still runs that :func:`launch.remote.base.processes.identity` described."""
    try:
        with open(f"/proc/{int(process['pid'])}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == process["started"] and fields[0] not in (b"Z", b"X")


def replace(path: str, text: str) -> bool:
    """Write a whole file, on a full disk into the room of :func:`keep_room`, or leave the old one; return
    whether the file is new."""
    temporary = f"{path}.{os.urandom(8).hex()}"
    for source, mode in ((temporary, "w"), (path + _ROOM_NAME, "r+")):
        try:
            with open(source, mode, encoding="utf-8") as file:
                file.write(text)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            os.rename(source, path)
        except OSError:
            _remove(temporary)
        else:
            return True
    return False


def keep_room(path: str) -> None:
    """Reserve room on the disk for a later :func:`replace`; an existing file becomes that room."""
    try:
        if os.path.exists(path):
            os.rename(path, path + _ROOM_NAME)
        elif not os.path.exists(path + _ROOM_NAME):
            replace(path + _ROOM_NAME, " " * _ROOM)
    except OSError:
        _remove(path)


def overwrite(path: str, moment: float) -> None:
    """Write a time into a file in place, which a full disk allows; where that fails, remove the file."""
    text = f"{moment:<24.3f}"
    try:
        with open(path, "r+", encoding="ascii", opener=regular) as file:
            file.write(text)
    except OSError:
        if not replace(path, text):
            _remove(path)


def sweep(folder: str, *names: str) -> None:
    """Remove temporary files of processes that have ended."""
    for entry in os.listdir(folder):
        name, _, number = entry.rpartition(".")
        if name in names and number.isdigit() and not os.path.exists(f"/proc/{number}"):
            _remove(f"{folder}/{entry}")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def end_jobs(folder: str, within_s: float, reason: str) -> int:
    """Request the end of every job with its head here, in its own grace but within so many seconds; return
    the number of new requests."""
    ending = 0
    for job in Activity(folder).jobs():
        place = f"{folder}/jobs/{job}"
        try:
            grace = min(float(json.loads(_read(f"{place}/job.json"))["grace_s"]), within_s)
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            grace = within_s  # a damaged record is no reason to let its job run on
        if not os.path.exists(f"{place}/cancel"):
            ending += replace(f"{place}/cancel", f"{grace:g}\n{reason}")
    return ending
