"""One file of a job that a node sends: its part on the disk, its digest, and the place where it goes."""

from __future__ import annotations

import hashlib
import os
from typing import IO, Any

from launch.received_names import CannotKeep
from launch.remote.base import job_dir
from launch.remote.base.files import write_all
from launch.remote.collect import send
from launch.results.diff import Copy, Landing, Wanted
from launch.results.folder import Changed, Results

__all__ = ["NO_PLAN", "PLAN_BYTES", "ReceivedFile"]

PLAN_BYTES = 64 << 20
"""Largest plan, as :func:`~launch.remote.base.files.read_regular` reads one."""
NO_PLAN = f"has {{}} bytes, and a plan has at most {PLAN_BYTES >> 20} MiB"


class ReceivedFile:
    """A file being received; if it cannot be written, its bytes are discarded, so that the next follows."""

    def __init__(
        self,
        results: Results,
        wanted: Wanted,
        goal: Landing | Copy,
        mtime_ns: int,
        digest: Any,
        left: int,
    ) -> None:
        self.wanted, self.goal, self.mtime_ns = wanted, goal, mtime_ns
        self.left = left
        """Bytes that are still to come, as announced: a stream without end would fill the disk."""
        self._results = results
        self.digest = hashlib.sha256() if digest is None else digest.copy()
        self._part: IO[bytes] | None = None
        self._problem = ""
        if isinstance(goal, Landing):
            try:
                self._part = results.open_part(wanted.name, goal.source, self.digest)
            except (CannotKeep, Changed) as error:
                self._problem = str(error)

    def write(self, data: bytes) -> None:
        """Write the next bytes. Raise :class:`~launch.errors.RetryError` when no file can be written here."""
        if self._part is None:
            return
        try:
            write_all(self._part.fileno(), data)
        except OSError as error:
            trouble = self._results.trouble(error)
            self.close()
            if not isinstance(trouble, CannotKeep):
                raise trouble from None
            self._problem = str(trouble)
        self.digest.update(data)

    def land(self, goal: Landing, sha256: str) -> str:
        """Give the file its name and return it. Raise :class:`~launch.received_names.CannotKeep`."""
        if self._problem:
            raise CannotKeep(self._problem)
        if self.digest.hexdigest() != sha256:
            self._results.drop_part(self.wanted.name)
            raise CannotKeep("changed during the transfer: collect again")
        if self.wanted.entry.path == send.PLAN and self._part is not None:
            sha256 = self._drop_values(self._part) or sha256
        self.close()
        return self._results.keep(self.wanted.name, goal.name, goal.replaces, self.mtime_ns, sha256)

    def _drop_values(self, part: IO[bytes]) -> str:
        """Remove the values of the user's variables from a plan; return its new digest, "" if unchanged.

        The values are secrets. Only node code of earlier versions sends them, and its jobs keep that code.
        """
        part.seek(0)
        sent = part.read(PLAN_BYTES + 1)
        try:
            if len(sent) > PLAN_BYTES:
                raise job_dir.Torn(send.PLAN, NO_PLAN.format(os.fstat(part.fileno()).st_size))
            data = job_dir.shown_plan(sent)
        except job_dir.Unreadable as error:
            self._results.drop_part(self.wanted.name)
            raise CannotKeep(error.problem) from None
        if data == sent:
            return ""
        part.seek(0)
        part.truncate()
        try:
            write_all(part.fileno(), data)
        except OSError as error:
            raise self._results.trouble(error) from None
        return hashlib.sha256(data).hexdigest()

    def close(self) -> None:
        """Close the file; the received part stays."""
        part, self._part = self._part, None
        if part is not None:
            try:
                part.close()
            except OSError as error:  # a network disk may report only now that it is full
                raise self._results.trouble(error) from None
