"""What descends from a job's runners: recorded while they live, for whoever ends it once they are gone."""

from __future__ import annotations

import os
import time

from launch.remote.base import processes
from launch.remote.base.files import discard, replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DESCENT", "DescentRecord", "children_of_job", "descended", "descent", "program_names"]

DESCENT = "descent."
"""Beginning of the names, in a job's folder on a node, of its runners' records of :func:`descent`; the node's
name and the runner's pid follow."""
_EVERY_S = 0.25
_MOST_NAMED = 10
"""Programs whose names are reported."""
_LONGEST_ENTRY = 64


class DescentRecord:
    """The file of one runner, in the job's ``folder``, with what descends from it."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{DESCENT}{os.uname().nodename}.{os.getpid()}"
        self._at, self._described = 0.0, b""

    def keep(self, now: float) -> None:
        """Record what descends from this process. That takes 1 % of a processor at most."""
        if now < self._at:
            return
        described = descent()
        if described != self._described:
            try:
                replace_file(self._path, described, outlives_machine=False)
                self._described = described
            except OSError:  # a full disk: the next record may find room
                pass
        self._at = now + max(_EVERY_S, 100 * (time.monotonic() - now))

    def discard(self) -> None:
        """Remove the file."""
        discard(self._path)


def program_names(pids: Iterable[int]) -> list[tuple[str, int]]:
    """Return the names of the processes' programs, each with the number of its processes, the most first."""
    counts: dict[str, int] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm", "rb") as file:
                name = file.read().strip().decode("utf-8", "replace")
        except OSError:
            continue
        counts[name] = counts.get(name, 0) + 1
    return sorted(counts.items(), key=lambda one: -one[1])[:_MOST_NAMED]


def descent() -> bytes:
    """Return a record of every living process below this one, for :func:`descended`: the machine's boot, then
    pid, start and session of each."""
    stats, own = processes.process_stats(), os.getsid(0)
    lines = [processes.boot()]
    for pid in processes.below(os.getpid(), {pid: parent for pid, (parent, _, _) in stats.items()}):
        _, session, start = stats[pid]
        lines.append(b"%d %s %d" % (pid, start, 0 if session == own else session))
    return b"\n".join(lines)


def descended(records: Iterable[bytes]) -> set[int]:
    """Return the living processes of these records, and what these have started since: whatever is below
    them, or in their sessions, for whose number the kernel takes no other process's as long as one lives."""
    stats, boot = processes.process_stats(), processes.boot()
    found: set[int] = set()
    sessions: set[int] = set()
    for record in records:
        first, *lines = record.split(b"\n")
        entries = [line for line in lines if first == boot and _is_entry(line)]
        starts = {int(pid): start for pid, start, _ in map(bytes.split, entries)}
        living = {pid for pid, start in starts.items() if pid in stats and stats[pid][2] == start}
        leaders = {int(line.split()[2]) for line in entries} - {0}
        found |= living
        sessions |= {pid for pid in leaders if pid in living or pid not in stats}
    while True:
        new = {pid for pid, (parent, session, _) in stats.items() if parent in found or session in sessions}
        if new <= found:
            return found
        found |= new


def _is_entry(line: bytes) -> bool:
    return len(line) < _LONGEST_ENTRY and line.count(b" ") == 2 and line.replace(b" ", b"").isdigit()  # noqa: PLR2004


def children_of_job(job: str, records: Iterable[bytes] = ()) -> list[int]:
    """Return this user's processes with ``job`` in their environment, and those that its runners' ``records``
    show, but this one and its parents. They remain when a runner and its guardians were killed."""
    parents = processes.parents_of_all()
    above = {0}
    pid = os.getpid()
    while pid not in above:
        above.add(pid)
        pid = parents.get(pid, 0)
    wanted, known = b"RANKLIFT_JOB_ID=" + job.encode(), descended(records)
    return [
        pid
        for pid in parents
        if pid not in above and (pid in known or wanted in processes.words_of(pid, "environ"))
    ]
