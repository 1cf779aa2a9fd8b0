"""Memory of rehearsed VMs as ``/proc/meminfo`` shows it: the size's, and what the node's processes use of it.

A process uses its resident pages that are neither a file's nor shared (man 5 proc_pid_statm), which no kernel
can free. Pages that a parent and its child still share count twice, and files in memory not at all. All else
in the file is this machine's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MEMINFO", "MemoryFiles", "meminfo_text"]

MEMINFO = "meminfo"
"""File for ``/proc/meminfo``: of a tree of devices, where the size's memory is known, and of each node."""

_FIELD = re.compile(r"^(MemTotal|MemFree|MemAvailable):.*$", re.MULTILINE)
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") >> 10
_AT_ONCE = 64
"""Processes that are read without a pause: some 1 ms, for the network waits."""
_LEAST_S, _PAUSES_PER_WORK = 1.0, 100
"""Least time between two measurements, and a pause in times that the one before took: all nodes' memory takes
a hundredth of a processor at most."""


def meminfo_text(machine: str, total_kib: int, used_kib: int = 0) -> str:
    """Return a text like this machine's with another size and use; its length depends on the size alone.

    >>> meminfo_text("MemTotal:       16318140 kB\\nMemFree: 1 kB\\nBuffers:    80 kB\\n", 441 << 20, 24)
    'MemTotal:      462422016 kB\\nMemFree:       462421992 kB\\nBuffers:    80 kB\\n'
    """
    width = max(9, len(str(total_kib)))

    def line(found: re.Match[str]) -> str:
        kib = total_kib if found[1] == "MemTotal" else max(0, total_kib - used_kib)
        return f"{found[1] + ':':<14} {kib:>{width}} kB"

    return _FIELD.sub(line, machine)


@dataclass(slots=True)
class _File:
    path: Path
    text: str
    total_kib: int
    written_kib: int = 0


class MemoryFiles:
    """Files of nodes, written again as their processes use more or less; ``proc`` lists these."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._files: dict[str, _File] = {}
        """By the PID namespace of the node."""
        self._namespaces: dict[int, str] = {}
        """Of the processes that were there at the last measurement."""
        self._work_s = 0.0

    def add(self, pid: int, path: Path) -> None:
        """Keep a node's file up to date, if it has one; ``pid`` is its first process."""
        namespace = self._namespace(pid)
        if path.exists() and namespace:
            text = path.read_text()
            total = next(line for line in text.splitlines() if line.startswith("MemTotal:"))
            self._files[namespace] = _File(path, text, int(total.split()[1]))

    def update(self) -> Iterator[None]:
        """Measure all nodes once and write what has changed, with a step after every few processes."""
        if not self._files:
            return
        began = time.perf_counter()
        used = dict.fromkeys(self._files, 0)
        pids = [int(name) for name in os.listdir(self._proc) if name.isdigit()]  # noqa: PTH208 - thousands
        self._namespaces = {pid: self._namespaces[pid] for pid in pids if pid in self._namespaces}
        work_s = 0.0
        for number, pid in enumerate(pids):
            namespace = self._namespaces.get(pid) or self._namespace(pid)
            self._namespaces[pid] = namespace
            if namespace in used:
                used[namespace] += self._own_kib(pid)
            if number % _AT_ONCE == _AT_ONCE - 1:
                work_s += time.perf_counter() - began
                yield
                began = time.perf_counter()
        alive = set(self._namespaces.values())
        self._files = {namespace: file for namespace, file in self._files.items() if namespace in alive}
        for namespace, file in self._files.items():
            _write(file, used[namespace])
        self._work_s = work_s + time.perf_counter() - began

    @property
    def pause_s(self) -> float:
        """Seconds until the next measurement."""
        return max(_LEAST_S, _PAUSES_PER_WORK * self._work_s)

    def _namespace(self, pid: int) -> str:
        try:
            return os.readlink(f"{self._proc}/{pid}/ns/pid")  # noqa: PTH115 - as above
        except OSError:
            return ""

    def _own_kib(self, pid: int) -> int:
        try:
            with open(f"{self._proc}/{pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123 - as above
                _, resident, shared, *_ = file.read().split()
        except (OSError, ValueError):
            return 0
        return max(0, int(resident) - int(shared)) * _PAGE_KIB


def _write(file: _File, used_kib: int) -> None:
    """Write a file in place, for the node has it mounted; a node that is being removed has none."""
    if used_kib != file.written_kib:
        with suppress(OSError), file.path.open("r+b", buffering=0) as opened:
            opened.write(meminfo_text(file.text, file.total_kib, used_kib).encode())
            file.written_kib = used_kib
