"""Download of one node's files of a job into the results folder."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.client.left_files import LeftFiles, merged
from launch.errors import GiveUpError
from launch.received_names import CannotKeep
from launch.remote.base import frames, payloads
from launch.remote.base.payloads import FileEnd, FileStart, Listed
from launch.remote.collect import send
from launch.remote.reading import parse, read
from launch.results.diff import Copy, Entry, FetchPlan, Landing, Wanted, landing, plan_fetch
from launch.results.folder import Changed, Results
from launch.results.received_file import NO_PLAN, PLAN_BYTES, ReceivedFile

__all__ = ["CollectReport", "NodeFetch", "NodeFiles", "Progress"]

_LISTING, _ENTRIES = 128 << 20, 1_000_000
"""Bytes and entries of the lists of files of one collect, all nodes together: an entry takes 1 KB of
memory and 40 µs here, however few bytes it has."""
_LONGEST_REASON = 1000
"""Characters kept of a node's reason why it did not send a file."""


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
    """Bytes of all nodes: expected, received, (of local files) hashed, and still due; and
    bytes and entries of their lists."""

    def __init__(self, show: Callable[[Progress], object]) -> None:
        self.total = self.come = self.checked = 0
        self.listing = self.entries = self.due = 0
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
        self._listing = self._listed_entries = self._due = 0
        self._listed = False
        self._waiting: deque[tuple[Wanted, list[Any]]] = deque()
        self._file: ReceivedFile | None = None
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
        self._forget_listing()
        self._listed = False
        self._waiting.clear()
        self._owe(-self._due)

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
            *(self.node, self._entries, here),
            is_head=is_head,
            taken=self._is_taken,
            problems=self._results.problems,
            match=self._match,
        )
        self._entries = []
        self._skipped, self._left_out, self._matched = plan.skipped, plan.left_out, plan.matched
        self._kept.update(copy.name for copy in plan.kept)
        self._make(plan)
        free = self._results.free() if plan.wanted else 0
        wanted = [one for one in plan.wanted if self._fits(one, free)]
        self._results.forget_sums(copy.name for one in wanted for copy in one.here.copies if copy.whole)
        lines = [self._request(one) for one in wanted]
        self._progress.add(total=sum(one.entry.size for one in wanted))
        return b"".join(lines)

    def _fits(self, wanted: Wanted, free: int) -> bool:
        """Return whether the ``free`` bytes of the disk take the file beside all that is still due; note why
        one is left out."""
        size, room = wanted.entry.size, free - self._progress.due
        if wanted.entry.path == send.PLAN and size > PLAN_BYTES:
            self._left_out[wanted.entry.path] = NO_PLAN.format(size)
        elif wanted.least > max(room, 0):
            problem = f"has {size} bytes, and {self._results.folder} has room for {max(room, 0)}"
            self._left_out[wanted.entry.path] = problem
        else:
            self._owe(wanted.least)
            return True
        return False

    def _owe(self, count: int) -> None:
        self._due += count
        self._progress.due += count

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
                self._count(len(payload), 0)
                listed = read(list[Listed], parse(payload))
                self._count(0, len(listed))
                self._entries += map(Entry.from_listing, listed)
            elif kind == send.LEFT:
                self._count(len(payload), 0)
                self._left = LeftFiles.of(self.node, read(payloads.LeftFiles, parse(payload)))
            elif kind == send.LISTED:
                self._listed, self.has_folder = True, read(bool, parse(payload))
            elif kind == send.START:
                self._start(read(FileStart, parse(payload)))
            elif kind == send.END:
                self._end(read(FileEnd, parse(payload)))

    def _count(self, size: int, entries: int) -> None:
        """Count what the node lists. Raise :class:`~launch.remote.base.frames.ProtocolError`, with its list
        forgotten, where all lists together are longer than what is kept."""
        self._listing, self._listed_entries = self._listing + size, self._listed_entries + entries
        now = self._progress
        now.listing, now.entries = now.listing + size, now.entries + entries
        if now.listing > _LISTING or now.entries > _ENTRIES:
            self._forget_listing()
            raise frames.ProtocolError(
                f"with its list of files this collect has more than {_ENTRIES} files and folders, or "
                f"{_LISTING >> 20} MiB of names: pack small files into archives in the job"
            )

    def _forget_listing(self) -> None:
        self._progress.listing -= self._listing
        self._progress.entries -= self._listed_entries
        self._entries, self._listing, self._listed_entries = [], 0, 0

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
        if size - here > max(wanted.least, self._results.free()):
            raise GiveUpError(
                f"{self.node}: {wanted.entry.path} has {size} bytes now, more than the disk takes"
            )
        self._owe(size - here - wanted.least)
        self._file = ReceivedFile(self._results, wanted, goal, mtime_ns, digest, size - here)
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
        self._owe(-len(data))
        self._bytes += len(data)
        self._progress.add(come=len(data))

    def _end(self, end: FileEnd) -> None:
        sha256, error, gone = end.get("sha256", ""), end.get("error", ""), end.get("gone", False)
        file, self._file = self._file, None
        if file is None and not self._waiting:
            raise GiveUpError(f"{self.node}: it sent files that were not requested")
        wanted = file.wanted if file is not None else self._waiting.popleft()[0]
        self._owe(-(file.left if file is not None else wanted.least))
        path = wanted.entry.path
        try:
            if gone:
                self._vanished.append(path)
                self._results.drop_part(wanted.name)
            elif error or file is None:
                self._left_out[path] = error[:_LONGEST_REASON] or "it was not sent"
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

    def _land(self, file: ReceivedFile, goal: Landing, sha256: str) -> None:
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
