"""One measurement of a cluster at a time: a lock here, and the jobs of checks that run elsewhere."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from launch.errors import RetryError
from playbooks.project import Stack

__all__ = ["JOB_NAME", "alone", "refuse_beside_check"]

JOB_NAME = "check-{round}-{group}"
"""Name of a job that measures a group of nodes."""
_ID = re.compile(r"check-\d+-\d+-\d{8}-\d{6}-\w+")
_NOTE_BYTES = 200


@contextmanager
def alone(stack: Stack) -> Iterator[None]:
    """Be the only command here that measures the stack; raise :class:`~launch.errors.RetryError` otherwise.

    Two measurements at once would have each other's jobs on the links that they measure. The lock ends with
    its process, however that ends.
    """
    with stack.check_lock.open("a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read(_NOTE_BYTES).decode("utf-8", "replace")
            raise RetryError(
                f"stack {stack.name}: another `fab check --deep` measures it "
                f"({holder or 'it has just begun'}); nothing was measured: repeat this when that has ended"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC".encode())
        lock.flush()
        yield


def refuse_beside_check(stack: Stack, jobs: Mapping[str, Iterable[str]]) -> None:
    """Raise :class:`~launch.errors.RetryError` naming one of the nodes' ``jobs`` with which a check from
    elsewhere measures."""
    for node, held in jobs.items():
        for job in held:
            if _ID.fullmatch(job):
                raise RetryError(
                    f"stack {stack.name}: job {job} of another `fab check --deep` measures {node}; nothing "
                    "was measured: repeat this when that has ended"
                )
