"""Download of one node's files of a job into the results folder."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from launch.client.left_files import LeftFiles, merged
from launch.errors import GiveUpError
from launch.remote.base import frames, job_dir, payloads
from launch.remote.base.files import write_all
from launch.remote.base.payloads import FileEnd, FileStart, Listed
from launch.remote.collect import send
from launch.remote.reading import parse, read
from launch.results.diff import Copy, Entry, FetchPlan, Landing, Wanted, landing, plan_fetch
from launch.results.folder import CannotKeep, Changed, Results

__all__ = ["CollectReport", "NodeFetch", "NodeFiles", "Progress"]

_LISTING = 256 << 20
"""Bytes of a node's list of files: some two million files."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Counts and names of the files collected from one node."""

    written: int
    kept: int
    """Number of files that were already here, whole."""
    bytes: int
    continued: int = 0
    """Number of written files that were here in part."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Numbered name by the file's own name, which something else has here."""
    vanished: tuple[str, ...] = ()
    """Files removed before their transfer: a running job removes some."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Reason by path, for what is not a file of the job: sockets, links that lead out of its folder."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    left: LeftFiles | None = None
    """What stays in the working folder, where that is not collected."""
    matched: int = 0
    """Number of entries of the working folder that fit the pattern of a collect that has one."""


@dataclass(frozen=True, slots=True)
class CollectReport:
    """The folder of a job's files, and each node's files or error."""

    folder: Path
    results: Mapping[str, NodeFiles | Exception]
    without_head: str = ""
    """Why the nodes were queried directly; empty when the head served."""

    @property
    def errors(self) -> dict[str, Exception]:
        """Errors by node."""
        return {node: result for node, result in self.results.items() if isinstance(result, Exception)}

    @property
    def files(self) -> dict[str, NodeFiles]:
        """Files by node, without the errors."""
        return {node: result for node, result in self.results.items() if isinstance(result, NodeFiles)}

    @property
    def left(self) -> LeftFiles | None:
        """What stays in working folders; None where that is nothing."""
        return merged(files.left for files in self.files.values() if files.left is not None)

    @property
    def is_complete(self) -> bool:
        """Whether all files of the nodes are here."""
        return not self.errors and not any(files.left_out for files in self.files.values())


class Progress:
    """Bytes of all nodes: expected, received, and (of local files) hashed."""

    def __init__(self, show: Callable[[Progress], object]) -> None:
        self.total = self.come = self.checked = 0
        self._show = show

    def add(self, *, total: int = 0, come: int = 0, checked: int = 0) -> None:
        """Add to the counts and report them."""
        self.total += total
        self.come += come
        self.checked += checked
        self._show(self)


class NodeFetch:
    """The fetch of one node's files, repeated over another connection where need be: files that have arrived
    count."""

    def __init__(
        self, node: str, results: Results, progress: Progress, claims: dict[str, str], match: str = ""
    ) -> None:
        self.node, self._match = node, match
        self.has_folder = False
        self._results, self._progress, self._claims = results, progress, claims
        self._decoder = frames.Decoder()
        self._entries: list[Entry] = []
        self._listing = 0
        self._listed = False
        self._waiting: deque[tuple[Wanted, list[Any]]] = deque()
        self._file: _File | None = None
        self._kept: set[str] = set()
        self._written: dict[str, bool] = {}
        self._bytes = 0
        self._renamed: dict[str, str] = {}
        self._vanished: list[str] = []
        self._skipped: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._left: LeftFiles | None = None
        self._matched = 0

    def again(self) -> None:
        """Start again over another connection: request again what the last one left unfinished."""
        self.close()
        self._decoder = frames.Decoder()
        self._entries, self._listing, self._listed = [], 0, False
        self._waiting.clear()

    def close(self) -> None:
        """Close a file whose transfer is unfinished; the received part stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- the listing, and what follows from it -----------------------------------------------------

    @property
    def asked_for(self) -> int:
        """Bytes of the files that have been requested and have not arrived."""
        return sum(wanted.entry.size for wanted, _ in self._waiting)

    def requests(self, *, is_head: bool) -> bytes:
        """Make folders and links by the node's listing; return the requests for its files. Raise
        :class:`~launch.errors.GiveUpError` when the listing is incomplete."""
        if not self._listed:
            raise GiveUpError(f"{self.node}: it ended before it had listed what it has")
        here = self._results.here
        plan = plan_fetch(
            self.node, self._entries, here, is_head=is_head, taken=self._is_taken, match=self._match
        )
        self._entries = []
        self._skipped, self._left_out, self._matched = plan.skipped, plan.left_out, plan.matched
        self._kept.update(copy.name for copy in plan.kept)
        self._make(plan)
        self._results.forget_sums(copy.name for one in plan.wanted for copy in one.here.copies if copy.whole)
        lines = [self._request(wanted) for wanted in plan.wanted]
        self._progress.add(total=sum(wanted.entry.size for wanted in plan.wanted))
        return b"".join(lines)

    @property
    def is_of_head(self) -> bool:
        """Whether the listing has records that only a job's head has."""
        return any(entry.path == "job.json" for entry in self._entries)

    def _is_taken(self, name: str) -> bool:
        return self._claims.setdefault(name, self.node) != self.node

    def _make(self, plan: FetchPlan) -> None:
        for name in plan.folders:
            try:
                self._results.make_folder(name)
            except CannotKeep as error:
                self._left_out[name] = str(error)
        for name, target in plan.links:
            try:
                self._results.make_link(name, target)
                self._written[name] = False
            except CannotKeep as error:
                self._left_out[name] = str(error)

    def _request(self, wanted: Wanted) -> bytes:
        digests: list[Any] = []
        beginnings: list[tuple[int, str]] = []
        for copy in wanted.here.copies:
            try:
                digest = self._results.digest(copy, lambda count: self._progress.add(checked=count))
                beginnings.append((copy.size, digest.hexdigest()))
            except Changed:
                digest = None
                beginnings.append((copy.size, ""))
            digests.append(digest)
        self._waiting.append((wanted, digests))
        return json.dumps([wanted.entry.path, beginnings]).encode() + b"\n"

    # -- what arrives -------------------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        """Process the next bytes from the node. Raise errors that concern more than one file: a full disk."""
        for kind, payload in self._decoder.feed(data):
            if kind == send.DATA:
                self._data(payload)
            elif kind == send.ENTRIES:
                self._listing += len(payload)
                if self._listing > _LISTING:
                    raise frames.ProtocolError(f"a list of files of more than {_LISTING >> 20} MiB")
                self._entries += map(Entry.from_listing, read(list[Listed], parse(payload)))
            elif kind == send.LEFT:
                self._left = LeftFiles.of(self.node, read(payloads.LeftFiles, parse(payload)))
            elif kind == send.LISTED:
                self._listed, self.has_folder = True, read(bool, parse(payload))
            elif kind == send.START:
                self._start(read(FileStart, parse(payload)))
            elif kind == send.END:
                self._end(read(FileEnd, parse(payload)))

    def check(self) -> None:
        """Raise :class:`~launch.errors.GiveUpError` when requested files have not arrived."""
        if self._waiting or self._file is not None:
            raise GiveUpError(f"{self.node}: it ended before it had sent everything")

    def _start(self, start: FileStart) -> None:
        matched, size, mtime_ns = start["matched"], start["size"], start["mtime_ns"]
        if not self._waiting:
            raise GiveUpError(f"{self.node}: it sent files that were not requested")
        wanted, digests = self._waiting.popleft()
        if max(matched, default=-1) >= len(digests):
            raise GiveUpError(f"{self.node}: it continues a copy of {wanted.entry.path} that is not here")
        self._progress.add(total=size - wanted.entry.size)
        known = [number for number in matched if digests[number] is not None]
        goal = landing(wanted, known, size)
        source = goal if isinstance(goal, Copy) else goal.source
        digest = None if source is None else digests[wanted.here.copies.index(source)]
        here = 0 if source is None else source.size
        self._file = _File(self._results, wanted, goal, mtime_ns, digest, size - here)
        self._progress.add(come=here)

    def _data(self, data: bytes) -> None:
        if self._file is None:
            raise GiveUpError(f"{self.node}: it sent files that were not requested")
        self._file.left -= len(data)
        if self._file.left < 0:
            path = self._file.wanted.entry.path
            self._results.drop_part(self._file.wanted.name)
            self.close()
            raise GiveUpError(f"{self.node}: it sent more of {path} than the size that it had announced")
        self._file.write(data)
        self._bytes += len(data)
        self._progress.add(come=len(data))

    def _end(self, end: FileEnd) -> None:
        sha256, error, gone = end.get("sha256", ""), end.get("error", ""), end.get("gone", False)
        file, self._file = self._file, None
        if file is None and not self._waiting:
            raise GiveUpError(f"{self.node}: it sent files that were not requested")
        wanted = file.wanted if file is not None else self._waiting.popleft()[0]
        path = wanted.entry.path
        try:
            if gone:
                self._vanished.append(path)
                self._results.drop_part(wanted.name)
            elif error or file is None:
                self._left_out[path] = error or "it was not sent"
            elif isinstance(file.goal, Copy):
                self._results.confirm(file.goal, file.mtime_ns, file.digest.hexdigest())
                self._kept.add(file.goal.name)
            else:
                self._land(file, file.goal, sha256)
        except CannotKeep as problem:
            self._left_out[path] = str(problem)
        finally:
            if file is not None:
                file.close()

    def _land(self, file: _File, goal: Landing, sha256: str) -> None:
        name = file.land(goal, sha256)
        self._written[name] = goal.source is not None
        if name != (goal.replaces.name if goal.replaces is not None else file.wanted.name):
            self._renamed[file.wanted.name] = name

    def result(self) -> NodeFiles:
        """Return what has arrived so far."""
        return NodeFiles(
            written=len(self._written),
            kept=len(self._kept.difference(self._written)),
            bytes=self._bytes,
            continued=sum(self._written.values()),
            renamed=dict(self._renamed),
            vanished=tuple(self._vanished),
            skipped=dict(self._skipped),
            left_out=dict(self._left_out),
            left=self._left,
            matched=self._matched,
        )


class _File:
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
        """Give the file its name and return it. Raise :class:`~launch.results.folder.CannotKeep`."""
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
        sent = part.read()
        try:
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
