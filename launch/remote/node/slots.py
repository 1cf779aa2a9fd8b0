"""A node's slots: locks held by a job's runners while the job runs, or by a command that removes the node.

A drained node has the file ``~/.ranklift/drained``, whose text counts as the holder of each slot that no job
has: a file, so that it outlives a boot, and goes with the disk when the node is replaced or installed again.

Run as a program, from its source text, this module takes every free slot and holds it until stdin ends: the
code last pushed to the node may be older than the command, or missing.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from launch.remote.base.payloads import SlotRequest

__all__ = ["DRAINED", "HOLDER_BYTES", "SlotsTaken", "hold", "hold_some", "take_slots", "taken_slots"]

_TAKEN = -1
HOLDER_BYTES = 200
DRAINED = "/.ranklift/drained"
"""The file of a drained node, below its home."""
_TORN = "drained 1970-01-01T00:00:00Z by somebody"
"""The text of a drain that is lost."""


class SlotsTaken(Exception):
    """Other jobs hold some of the job's slots; ``taken`` are all slots that they hold on the node."""

    def __init__(self, taken: list[tuple[int, str]]) -> None:
        self.taken = taken
        holders = dict.fromkeys(holder for _, holder in taken)
        super().__init__(f"slots {[slot for slot, _ in taken]} are held by {', '.join(holders)}")


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
    os.makedirs(folder, mode=0o700, exist_ok=True)
    guard = os.open(folder + "/guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(guard, fcntl.LOCK_EX)
    return folder, guard


def _lock_slot(folder: str, slot: int, holder: str = "") -> tuple[int, str]:
    """Lock a slot and write the ``holder``, if given, to its file; return the descriptor and "". Where it is
    held, return :data:`_TAKEN` and its holder."""
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


def _drain() -> str:
    """Return the text of this node's drain; "" where it is not drained."""
    try:
        with open(os.environ.get("HOME", "/") + DRAINED, encoding="utf-8", errors="replace") as file:
            return file.read(HOLDER_BYTES).strip() or _TORN
    except FileNotFoundError:
        return ""


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
