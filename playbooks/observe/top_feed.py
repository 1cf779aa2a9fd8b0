"""What ``top`` shows, as it comes: a job's samples from its head, and the list of all jobs.

Both are read beside the screen, which a slow node must not hold up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from infra.inventory import Inventory
from launch.client.events import JobState
from launch.client.sample_stream import Watched, watch_samples
from launch.errors import GiveUpError, NodeUnreachable, RankliftError
from launch.remote.base import timing
from playbooks.jobs.listing import list_jobs
from playbooks.jobs.location import find_job
from playbooks.observe.top_rows import TopRows, make_rows
from playbooks.observe.top_screen import Link
from playbooks.project import Stack
from playbooks.ssh.connection import Cluster
from playbooks.ssh.fanout import in_background

__all__ = ["Feed", "JobsList", "News"]

_LIST_S = 20.0
_LIST_S_PER_NODE = 1 / 3
"""Pause between two lists of jobs: each node starts a Python for one, and 300 nodes take a second or more."""


@dataclass(frozen=True, slots=True)
class News:
    """What is known of one job; replaced as a whole by the thread that reads it."""

    head: str
    heard: float
    """:func:`time.monotonic` of the last sign of life; of the beginning until there is one."""
    rows: TopRows | None = None
    jobs: Sequence[JobState] = ()
    """Jobs of the same head that have not ended."""
    reason: str = ""
    """Why the last connection broke; empty from the next sign of life on."""
    error: RankliftError | None = None
    """What ends the reading, other than a break."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, so that nothing more will come."""
        return self.rows is not None and self.rows.job.is_terminal

    def link(self, now: float) -> Link:
        """Return the state of the connection at ``now``."""
        silent = now - self.heard
        is_silent = not self.has_ended and (silent >= timing.WATCH_SILENT_S or bool(self.reason))
        return Link(self.head, max(1.0, silent) if is_silent else 0.0, self.reason)


class Feed:
    """The samples of one job, read beside the screen; connects again after every break until it is closed."""

    def __init__(self, stack: Stack, inventory: Inventory, job: str, wake: Callable[[], object]) -> None:
        """Start reading; ``wake`` is called at every change, in another thread."""
        self.job = job
        self.news = News("its head", time.monotonic())
        self._stack, self._inventory, self._wake = stack, inventory, wake
        self._cluster = Cluster(inventory, stack.folder, tell=lambda _: None)
        self._closed = threading.Event()
        self._again_at = 0.0
        in_background(self._read)

    def close(self) -> None:
        """End the reading."""
        self._closed.set()
        self._cluster.close()

    def check(self, now: float) -> None:
        """Break a connection on which nothing has come for too long: another one may reach a live process."""
        limit = timing.WATCH_AGAIN_S
        if now - max(self.news.heard, self._again_at) > limit and not self.news.has_ended:
            self._again_at = now
            self._cluster.close()

    def _read(self) -> None:
        while not self._closed.is_set():
            try:
                place = find_job(self._stack, self._inventory, self.job)
                self.news = replace(self.news, head=place.head.name)
                host = self._cluster.host(place.head)
                watch_samples(self.job, host, self._on_answer, self._on_sign, remote=place.remote)
                reason = "its command ended"
            except NodeUnreachable as error:
                reason = error.reason
            except RankliftError as error:
                self._end(error)
                return
            except Exception as error:  # noqa: BLE001 - a fault here must not leave a screen that never changes
                self._end(GiveUpError(f"{self.news.head}: {type(error).__name__}: {error}"))
                return
            if self.news.has_ended:
                return
            self.news = replace(self.news, reason=reason)
            self._wake()
            self._closed.wait(timing.ASK_AGAIN_S)

    def _end(self, error: RankliftError) -> None:
        if not self._closed.is_set():
            self.news = replace(self.news, error=error)
            self._wake()

    def _on_answer(self, watched: Watched) -> None:
        rows = make_rows(watched.samples)
        self.news = replace(self.news, rows=rows, jobs=watched.jobs)

    def _on_sign(self) -> None:
        self.news = replace(self.news, heard=time.monotonic(), reason="")
        self._wake()


class JobsList:
    """All jobs of the stack that have not ended, listed again and again until it is closed."""

    def __init__(
        self, stack: Stack, inventory: Inventory, first: Sequence[JobState] | None, wake: Callable[[], object]
    ) -> None:
        """Start with the jobs of ``first``; None where none were listed yet."""
        self.jobs: Sequence[JobState] = first or ()
        self._inventory, self._wake = inventory, wake
        self._cluster = Cluster(inventory, stack.folder, tell=lambda _: None)
        self._closed = threading.Event()
        self._is_due = first is None
        in_background(self._read)

    def close(self) -> None:
        """End the listing."""
        self._closed.set()
        self._cluster.close()

    def _read(self) -> None:
        nodes = self._inventory.nodes
        pause = max(_LIST_S, len(nodes) * _LIST_S_PER_NODE)
        while self._is_due or not self._closed.wait(pause):
            self._is_due = False
            try:
                found = list_jobs(lambda node: nullcontext(self._cluster.host(node)), nodes, 0)
            except RankliftError:
                continue  # the screen shows the jobs of the head that it watches
            self.jobs = found.jobs
            self._wake()
