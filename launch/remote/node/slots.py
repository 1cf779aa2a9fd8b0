"""A node's slots: locks held by a job's runners while the job runs, or by a command that removes the node.

A job may put anything in the place of these files: what is no file is moved aside (:func:`open_lock`), and
a new lock is made.

A drained node has the file ``~/.ranklift/drained``, whose text counts as the holder of each slot that no job
has: a file, so that it outlives a boot, and goes with the disk when the node is replaced or installed again.

Run as a program, from its source text, this module takes every free slot and holds it until stdin ends: the
code last pushed to the node may be older than the command, or missing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from launch.remote.base.payloads import SlotRequest

__all__ = [
    "ASIDE",
    "DRAINED",
    "HOLDER_BYTES",
    "SlotsTaken",
    "hold",
    "hold_some",
    "move_aside",
    "open_lock",
    "take_slots",
    "taken_slots",
]

_TAKEN = -1
HOLDER_BYTES = 400
DRAINED = "/.ranklift/drained"
"""The file of a drained node, below its home."""
_TORN = "drained 1970-01-01T00:00:00Z by somebody"
"""The text of a drain that is lost."""


ASIDE = ".damaged-"
"""Part of the name of what was moved aside."""
_ANYTHING = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open a file that may be anything: no link's target is opened, no pipe's writer awaited."""
_DAMAGED = (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EINVAL)
"""What opening a lock fails with where a job has put a folder, a link, a socket, a file without rights or a
pipe in its place."""


class SlotsTaken(Exception):
    """Other jobs hold some of the job's slots; ``taken`` are all slots that they hold on the node."""

    def __init__(self, taken: list[tuple[int, str]]) -> None:
        self.taken = taken
        holders = dict.fromkeys(holder for _, holder in taken)
        super().__init__(f"slots {[slot for slot, _ in taken]} are held by {', '.join(holders)}")


def move_aside(path: str) -> None:
    """Give what a job has put in the place of a file another name, beside it. Raise OSError."""
    os.rename(path, f"{path}{ASIDE}{os.urandom(4).hex()}")


def open_lock(path: str) -> int:
    """Return a descriptor of the file that is locked, a new one where a job put something else in its place,
    which is moved aside. Raise OSError."""
    try:
        return _open_regular(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in _DAMAGED:
            raise
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        # One at a time: a second process would move the new lock of the first aside.
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            return _open_regular(path, os.O_RDWR | os.O_CREAT)
        except OSError:
            move_aside(path)
        return _open_regular(path, os.O_RDWR | os.O_CREAT)
    finally:
        os.close(folder)


def _open_regular(path: str, flags: int) -> int:
    fd = os.open(path, flags | _ANYTHING, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "is no file", path)


def take_slots(spec: SlotRequest) -> list[int]:
    """Lock the job's slots on this node; return the descriptors that hold them until they are closed, however
    the runner ends. Raise :class:`SlotsTaken`, also on a drained node unless the job ran here before."""
    folder, guard = _guard_slots()
    try:
        if not spec["restarts"] and _drain():
            raise SlotsTaken(_taken(folder, spec["of"]))
        held: list[int] = []
        for slot in spec["slots"]:
            fd, _ = _lock_slot(folder, slot, spec["job"])
            if fd == _TAKEN:
                break
            held.append(fd)
        else:
            return held
        for fd in held:
            os.close(fd)
        others = _taken(folder, spec["of"])
        raise SlotsTaken([one for one in others if one[1] != spec["job"] or one[0] in spec["slots"]])
    finally:
        os.close(guard)


def taken_slots(count: int) -> list[tuple[int, str]]:
    """Return the held ones of this node's ``count`` slots, each with its holder."""
    folder, guard = _guard_slots()
    try:
        return _taken(folder, count)
    finally:
        os.close(guard)


def hold(count: int, holder: str) -> list[int]:
    """Lock the free ones of this node's ``count`` slots, so that no job takes them; return the descriptors
    that hold them. Running jobs keep theirs."""
    return hold_some(range(count), count, holder)


def hold_some(slots: Iterable[int], most: int, holder: str) -> list[int]:
    """Lock free ones of these ``slots``, in this order and at most so many; return the descriptors that hold
    them."""
    folder, guard = _guard_slots()
    try:
        held: list[int] = []
        for slot in slots:
            if len(held) == most:
                break
            fd, _ = _lock_slot(folder, slot, holder)
            if fd != _TAKEN:
                held.append(fd)
        return held
    finally:
        os.close(guard)


def _guard_slots() -> tuple[str, int]:
    """Return the slots' folder and a guard lock, needed because a query locks each slot for a moment."""
    folder = os.environ.get("HOME", "/") + "/.ranklift/slots"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except FileExistsError:  # it is no folder
        move_aside(folder)
        os.makedirs(folder, mode=0o700, exist_ok=True)
    guard = open_lock(folder + "/guard")
    fcntl.flock(guard, fcntl.LOCK_EX)
    return folder, guard


def _lock_slot(folder: str, slot: int, holder: str = "") -> tuple[int, str]:
    """Lock a slot and write the ``holder``, if given, to its file; return the descriptor and "". Where it is
    held, return :data:`_TAKEN` and its holder."""
    fd = open_lock(f"{folder}/{slot}")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found = os.read(fd, HOLDER_BYTES).decode("utf-8", "replace")
        os.close(fd)
        return _TAKEN, found
    if holder:
        os.ftruncate(fd, 0)
        os.write(fd, holder.encode()[:HOLDER_BYTES])
    return fd, ""


def _drain() -> str:
    """Return the text of this node's drain; "" where it is not drained."""
    try:
        fd = _open_regular(os.environ.get("HOME", "/") + DRAINED, os.O_RDONLY)
    except FileNotFoundError:
        return ""
    except OSError:  # what a job put in its place: the operator's word is lost, but was given
        return _TORN
    with open(fd, encoding="utf-8", errors="replace") as file:
        return file.read(HOLDER_BYTES).strip() or _TORN


def _taken(folder: str, count: int) -> list[tuple[int, str]]:
    found, drain = [], _drain()
    for slot in range(count):
        fd, holder = _lock_slot(folder, slot)
        if fd == _TAKEN:
            found.append((slot, holder))
            continue
        os.close(fd)
        if drain:
            found.append((slot, drain))
    return found


def _hold_until_stdin_ends(count: int, holder: str, limit_s: float) -> None:
    """Hold the free slots until the connection that started this program ends, for at most ``limit_s``."""
    import select

    hold(count, holder)
    os.write(1, b"held\n")
    waiting = select.poll()
    waiting.register(0, select.POLLIN | select.POLLHUP)
    waiting.poll(limit_s * 1000)  # nothing is ever sent, so the only event is the end of stdin


if __name__ == "__main__":
    import sys

    _hold_until_stdin_ends(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
