"""A node's slots: locks that a job's runners hold while it runs, and a command while it removes the node.

Run as a program, from its text alone, this takes every slot that is free and keeps it until stdin ends: what
was pushed to the node last may be older than the command, or nothing was ever pushed there.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.base.payloads import SlotRequest

__all__ = ["HOLDER_BYTES", "SlotsTaken", "hold", "take_slots", "taken_slots"]

_TAKEN = -1
HOLDER_BYTES = 200
"""How long a holder's name may be."""


class SlotsTaken(Exception):
    """Other jobs hold some of the slots that this one was given.

    ``taken`` are all slots of the node that other jobs hold, each with its holder.
    """

    def __init__(self, taken: list[tuple[int, str]]) -> None:
        self.taken = taken
        holders = dict.fromkeys(holder for _, holder in taken)
        super().__init__(f"slots {[slot for slot, _ in taken]} are held by {', '.join(holders)}")


def take_slots(spec: SlotRequest) -> list[int]:
    """Locks this node's slots for the job; they are free again when the descriptors given are closed.

    The kernel frees them however the runner ends. Raises :class:`SlotsTaken`.
    """
    folder, guard = _guard_slots()
    try:
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
    """Those of this node's ``count`` slots that somebody holds, each with its holder."""
    folder, guard = _guard_slots()
    try:
        return _taken(folder, count)
    finally:
        os.close(guard)


def hold(count: int, holder: str) -> list[int]:
    """Locks those of this node's ``count`` slots that are free, so that no job takes them.

    Gives the descriptors that hold them. Jobs that have slots already keep those: :func:`taken_slots` names
    them.
    """
    folder, guard = _guard_slots()
    try:
        locked = (_lock_slot(folder, slot, holder)[0] for slot in range(count))
        return [fd for fd in locked if fd != _TAKEN]
    finally:
        os.close(guard)


def _guard_slots() -> tuple[str, int]:
    """The folder of the slots, and a lock that is held while looking: a look takes each slot for a moment."""
    folder = os.environ.get("HOME", "/") + "/.ranklift/slots"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    guard = os.open(folder + "/guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(guard, fcntl.LOCK_EX)
    return folder, guard


def _lock_slot(folder: str, slot: int, holder: str = "") -> tuple[int, str]:
    """A descriptor that holds the slot, which then names the ``holder`` if one is given; or :data:`_TAKEN`
    and who holds it."""
    fd = os.open(f"{folder}/{slot}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def _taken(folder: str, count: int) -> list[tuple[int, str]]:
    found = []
    for slot in range(count):
        fd, holder = _lock_slot(folder, slot)
        if fd == _TAKEN:
            found.append((slot, holder))
        else:
            os.close(fd)
    return found


def _hold_until_stdin_ends(count: int, holder: str, limit_s: float) -> None:
    """Holds the free slots while the connection lasts that started this, for ``limit_s`` at most."""
    import select

    hold(count, holder)
    os.write(1, b"held\n")
    waiting = select.poll()
    waiting.register(0, select.POLLIN | select.POLLHUP)
    waiting.poll(limit_s * 1000)  # nothing is ever sent: the end of stdin is all that comes


if __name__ == "__main__":
    import sys

    _hold_until_stdin_ends(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
