"""Messages in the stream about output that is missing from the stream."""

from __future__ import annotations

from collections.abc import Iterable

from launch.remote.base.payloads import Note

__all__ = [
    "amount",
    "not_going_on",
    "not_kept",
    "of_a_rank",
    "outlived",
    "passed_by",
    "size",
    "unexplained_end",
]

_THOUSAND = 1000
_SIGNALLED = 128
"""A shell's exit status for signal n is this plus n."""
_KILL, _LAST_SIGNAL = 9, 64
"""Numbers of Linux: the module ``signal`` imports ``enum``, and ranks would start later."""


def size(count: float) -> str:
    """Return bytes in decimal units.

    >>> size(12), size(12_345_678)
    ('12 B', '12.3 MB')
    """
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if count < _THOUSAND:
            break
        count, unit = count / _THOUSAND, larger
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def amount(count: int, lines: int) -> str:
    """Return bytes and lines.

    >>> amount(12_345_678, 240_112), amount(5, 1)
    ('12.3 MB, 240,112 lines', '5 B, 1 line')
    """
    return f"{size(count)}, {lines:,} line{'' if lines == 1 else 's'}"


def of_a_rank(fields: Note, node: str) -> str:
    """Return the message of a NOTE about a rank, or about a launcher, which has no log.

    >>> note = {"rank": 3, "log": "rank-3", "bytes": 12_345_678, "lines": 240_112, "lost": 0, "why": ""}
    >>> of_a_rank(note, "node000001")
    'left out 12.3 MB, 240,112 lines; complete in logs/rank-3.log on node000001'
    """
    log = f"logs/{fields['log']}.log on {node}"
    if fields["bytes"]:
        left = f"left out {amount(fields['bytes'], fields['lines'])}"
        if not fields["log"]:
            return f"{left}, which were not kept"
        if fields["why"]:
            return f"{left}; {log} has part of it: {fields['why']}"
        return f"{left}; complete in {log}"
    if fields["lost"]:
        return f"{log} lacks {size(fields['lost'])}: {fields['why']}"
    return f"{log} cannot be written: {fields['why']}; the job continues"


def unexplained_end(status: int, line: str) -> str:
    """Return why a push's process ended: the last ``line`` of its errors, unless a signal ended it.

    >>> unexplained_end(1, "No space left on device"), unexplained_end(1, "")
    ('No space left on device', 'its process ended with status 1')
    >>> unexplained_end(137, "Killed")
    'its process was killed by signal 9; if the node ran out of memory, end what fills it, then push again'
    """
    number = status - _SIGNALLED
    if 0 < number <= _LAST_SIGNAL:  # ssh's own failures are 255
        why = "; if the node ran out of memory, end what fills it, then push again" if number == _KILL else ""
        return f"its process was killed by signal {number}{why}"
    return line or f"its process ended with status {status}"


def outlived(programs: Iterable[tuple[str, int]], grace_s: float) -> str:
    """Return the message about processes that were ended after their ranks.

    >>> outlived([("azcopy", 1), ("python3", 2)], 3.0)
    'azcopy (1 process), python3 (2 processes) still ran 3 s after their ranks had ended well, and were \
ended: wait for them in the script, or give a longer --grace'
    """
    named = ", ".join(
        f"{name if name.isprintable() else ascii(name)} ({count} process{'es' * (count != 1)})"
        for name, count in programs
    )
    return (
        f"{named} still ran {grace_s:g} s after their ranks had ended well, and were ended: wait for them in "
        "the script, or give a longer --grace"
    )


def not_going_on(why: str) -> str:
    """Return the message with which the stream on the head breaks off.

    >>> not_going_on("No space left on device")
    'stops here: No space left on device; the job and the logs on its nodes continue'
    """
    return f"stops here: {why}; the job and the logs on its nodes continue"


def not_kept(count: int, lines: int, why: str) -> str:
    """Return the message about output that could not be written to the stream on the head.

    >>> not_kept(2_000_000, 9_000, "No space left on device")
    'left out 2.0 MB, 9,000 lines of all ranks: No space left on device; see the logs on the nodes'
    """
    return f"left out {amount(count, lines)} of all ranks: {why}; see the logs on the nodes"


def passed_by(count: int, lines: int) -> str:
    """Return the message about output that left the stream before a follower read it.

    >>> passed_by(2_000_000, 9_000)
    'missed 2.0 MB, 9,000 lines of all ranks: only the newest are kept here; the logs on the nodes have them'
    """
    what = f"missed {amount(count, lines)} of all ranks"
    return f"{what}: only the newest are kept here; the logs on the nodes have them"
