"""Processes on all rehearsed nodes as this machine's own /proc shows them, whatever anybody's records say."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Watch", "end_mentioning", "named", "of_job", "rank_of", "until_named"]

_LOOK_S = 0.25


def named(mark: str) -> list[int]:
    """Processes whose ``argv[0]`` is that; those that have ended and wait for their parent have none."""
    wanted = mark.encode() + b"\0"
    return [pid for pid, line in _lines() if line.startswith(wanted)]


def until_named(mark: str, count: int, limit_s: float) -> list[int]:
    """The processes called ``mark``, once there are ``count``.

    Raises RuntimeError when that takes longer than ``limit_s``.
    """
    until = time.monotonic() + limit_s
    while len(found := named(mark)) < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{len(found)} of {count} processes after {limit_s:g} s")
        time.sleep(_LOOK_S)
    return found


def end_mentioning(mark: str) -> None:
    """Kills whatever has ``mark``, which must be nobody else's, on its command line."""
    for pid, line in _lines():
        if mark.encode() in line:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def of_job(job: str) -> list[int]:
    """Processes that see the job's id in their environment, and the runners above them."""
    wanted = f"RANKLIFT_JOB_ID={job}".encode()
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                found |= {int(entry.name), int(parent)}
    return sorted(found - {0, 1})


def rank_of(pid: int) -> int:
    """The rank's number, as whoever started it told it. Raises ValueError when nobody did."""
    for name, _, value in (
        entry.partition(b"=") for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ):
        if name in (b"RANK", b"OMPI_COMM_WORLD_RANK"):
            return int(value)
    raise ValueError(f"process {pid} has no rank")


def _lines() -> Iterable[tuple[int, bytes]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(entry.name), (entry / "cmdline").read_bytes()


class Watch:
    """The end of processes, told by the kernel: looking again and again would take the nodes' processor."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._poll = select.poll()
        self._left: set[int] = set()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                self._poll.register(handle, select.POLLIN)
                self._left.add(handle)

    def wait(self, limit_s: float) -> float:
        """Seconds until the last one has ended, or ``limit_s`` when some are there even then."""
        began = time.monotonic()
        while self._left and (rest := began + limit_s - time.monotonic()) > 0:
            for handle, _ in self._poll.poll(rest * 1000):
                self._poll.unregister(handle)
                self._left.discard(handle)
                os.close(handle)
        took = min(time.monotonic() - began, limit_s)
        while self._left:
            os.close(self._left.pop())
        return took
