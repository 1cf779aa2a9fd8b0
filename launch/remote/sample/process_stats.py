"""Processor time and memory of each rank: of its process and of all that descend from it.

A rank's processes are found by their parents, and those whose parent has ended by their session, for each
rank leads one. The list of all processes, which takes long where there are thousands, is read every few
seconds; in between, only the processes that are known to be a rank's are read.
"""

from __future__ import annotations

import os

from launch.remote.sample.node_stats import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ProcessStats", "parse_stat"]

_LISTED_S = 5.0
"""Seconds between two readings of the list of all processes: a process that lives shorter is counted once its
parent has waited for it."""
_PARENT, _SESSION, _USER_TIME, _CHILDREN_SYSTEM_TIME, _START, _RESIDENT = 1, 3, 11, 14, 19, 21
"""Places in /proc/PID/stat behind the name (man 5 proc_pid_stat), from its third field on."""


class _Process:
    """Figures of one process: its parent, its session, its ticks with those of the children that it waited
    for, its start in ticks since boot, and its resident pages."""

    def __init__(self, parent: int, session: int, ticks: int, start: int, pages: int) -> None:
        self.parent, self.session = parent, session
        self.ticks, self.start, self.pages = ticks, start, pages


def parse_stat(data: bytes) -> _Process | None:
    """Return what /proc/PID/stat holds; None for a process that has ended."""
    words = data.rpartition(b")")[2].split()
    if len(words) <= _RESIDENT:
        return None
    ticks = sum(int(word) for word in words[_USER_TIME : _CHILDREN_SYSTEM_TIME + 1])
    parent, session = int(words[_PARENT]), int(words[_SESSION])
    return _Process(parent, session, ticks, int(words[_START]), int(words[_RESIDENT]))


class ProcessStats:
    """Reader of the figures of ranks, given their pids by rank; ``folder`` is /proc."""

    def __init__(self, pids: Mapping[int, int], now: float, folder: str = "/proc") -> None:
        self._folder = folder
        self._leaders = {pid: rank for rank, pid in pids.items()}
        self._owners = dict(self._leaders)
        """By pid, the rank that a process belongs to."""
        self._others: set[int] = set()
        """Processes that belong to no rank."""
        self._spent = dict.fromkeys(pids, 0)
        self._ticks_s = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._time, self._listed = now, float("-inf")
        self.sample(now)

    def sample(self, now: float) -> dict[int, tuple[int, int]]:
        """Return of each rank the thousandths of a processor that it used since the sample before, and its
        resident bytes, at ``now`` in seconds of a monotonic clock."""
        seconds = max(now - self._time, 1e-3)
        found = {pid: self._read(pid) for pid in self._owners}
        living = {pid: process for pid, process in found.items() if process is not None}
        self._owners = {pid: rank for pid, rank in self._owners.items() if pid in living}
        unseen: dict[int, int] = {}
        if now - self._listed >= _LISTED_S:
            self._listed = now
            for pid, process in self._find_new().items():
                living[pid] = process
                rank = self._owners[pid]
                if process.start < self._boot_ticks(seconds):
                    # what it used before the last sample is not of this one
                    unseen[rank] = unseen.get(rank, 0) + process.ticks
        self._time = now
        spent = dict.fromkeys(self._spent, 0)
        pages = dict.fromkeys(self._spent, 0)
        for pid, process in living.items():
            rank = self._owners[pid]
            spent[rank] += process.ticks
            pages[rank] += process.pages
        samples = {}
        for rank in spent:
            # ticks of a process that nobody waits for are gone with it
            ticks = max(0, spent[rank] - self._spent[rank] - unseen.get(rank, 0))
            samples[rank] = int(1000 * ticks / self._ticks_s / seconds), pages[rank] * self._page
        self._spent = spent
        return samples

    def _read(self, pid: int) -> _Process | None:
        return parse_stat(read_file(f"{self._folder}/{pid}/stat"))

    def _boot_ticks(self, seconds: float) -> float:
        """Return the time of the sample before, in ticks since boot."""
        words = read_file(f"{self._folder}/uptime").split()
        return (float(words[0]) - seconds) * self._ticks_s if words else 0.0

    def _find_new(self) -> dict[int, _Process]:
        """Enter the processes that are not known yet as a rank's or another's; return those of ranks."""
        try:
            listed = {int(name) for name in os.listdir(self._folder) if name.isdigit()}
        except OSError:
            return {}
        self._others &= listed
        new = {}
        for pid in listed - self._others:
            if pid not in self._owners:
                process = self._read(pid)
                if process is not None:
                    new[pid] = process
        found = {}
        has_grown = True
        while has_grown:  # a child may have a lower pid than its parent
            has_grown = False
            for pid in [pid for pid in new if pid not in found]:
                rank = self._owners.get(new[pid].parent, self._leaders.get(new[pid].session))
                if rank is not None:
                    self._owners[pid] = rank
                    found[pid] = new[pid]
                    has_grown = True
        self._others.update(pid for pid in new if pid not in found)
        return found
