"""One measurement of a cluster at a time: a lock here, and the jobs of others that hold the nodes."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from infra.inventory import Inventory, Node
from launch.errors import RetryError
from launch.moments import utc
from launch.nodeset import fold
from playbooks.project import Stack

__all__ = ["JOB_NAME", "alone", "refuse_beside_check", "wait_for_free_nodes"]

JOB_NAME = "check-{round}-{group}"
"""Name of a job that measures a group of nodes."""
_ID = re.compile(r"check-\d+-\d+-\d{8}-\d{6}-\w+")
_NOTE_BYTES = 200
_FREE_S = 10.0
"""Time for the processes of a job that has just ended."""
_AGAIN_S = 1.0


@contextmanager
def alone(stack: Stack, task: str = "check --deep") -> Iterator[None]:
    """Be the only command here that measures the stack; raise :class:`~launch.errors.RetryError` otherwise.

    Two measurements at once would have each other's jobs on the nodes and links that they measure. The lock
    ends with its process, however that ends. ``task`` names this command in the other's error.
    """
    with stack.check_lock.open("a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder, _, process = lock.read(_NOTE_BYTES).decode("utf-8", "replace").partition(": ")
            raise RetryError(
                f"stack {stack.name}: another `fab {holder or task}` measures it "
                f"({process or 'it has just begun'}); nothing was measured: repeat this when that has ended"
            ) from None
        lock.truncate(0)
        lock.write(f"{task}: process {os.getpid()}, since {utc(datetime.now(UTC))}".encode())
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


def wait_for_free_nodes(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> None:
    """Wait until no job holds the nodes or waits for them: what has just ended needs a moment.

    Raise :class:`~launch.errors.RetryError` naming the jobs of others, beside which nothing can be measured.
    """
    from playbooks.nodes.busy import uses

    wanted = replace(inventory, nodes=tuple(nodes))
    deadline = time.monotonic() + _FREE_S
    while held := {name: use.jobs for name, use in uses(stack, wanted).items() if use.jobs}:
        if time.monotonic() > deadline:
            jobs = sorted({job for its in held.values() for job in its})
            raise RetryError(
                f"stack {stack.name}: {', '.join(jobs)} on {fold(held)}: a run beside another job says "
                f"nothing; `fab wait {jobs[0]}` waits for that one, `fab cancel {jobs[0]}` ends it"
            )
        time.sleep(_AGAIN_S)
