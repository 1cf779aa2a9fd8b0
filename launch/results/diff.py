"""The diff between a node's files and the local ones: pure, and the whole policy of a collect.

A local file is never overwritten by anything but its own continuation. An equal file is kept; one that is
the beginning of the node's file is continued; where the contents differ, the node's file gets a numbered
name. The node decides where a file continues, as it alone can read its file
(:mod:`launch.remote.collect.send`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from launch.remote.base.payloads import Listed
from launch.remote.collect.send import PLAN, RECORDS
from launch.remote.collect.trees import TREES, is_work

__all__ = ["Copy", "Entry", "FetchPlan", "Here", "Landing", "Wanted", "landing", "numbered", "plan_fetch"]

_NEWEST_COUNTS = frozenset({"state.json", "history.json", PLAN})
"""Records that the head's version replaces: an older state or course is useless, and a plan never changes,
but its local copy lacks the values that node code of an earlier version sends."""
_OWN_RECORD = "exits.jsonl"
_LONGEST, _DEEPEST = 4000, 200
"""Bytes of a path, of the 4096 that Linux takes; folders within each other."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a node's listing. ``kind`` is f(ile), d(irectory), l(ink), o(ther) or x (unreadable)."""

    kind: str
    path: str
    size: int = 0
    mtime_ns: int = -1
    """-1 when the file may still change unnoticed."""
    text: str = ""
    """A link's target; for ``o`` and ``x``, why the entry is not sent."""

    @classmethod
    def from_listing(cls, listed: Listed) -> Entry:
        """Return an entry of the node's listing."""
        if listed[0] == "f":
            return cls(listed[0], listed[1], listed[2], listed[3])
        return cls(listed[0], listed[1], text="" if listed[0] == "d" else listed[2])


@dataclass(frozen=True, slots=True)
class Copy:
    """A local file that may equal the node's file or its beginning."""

    name: str
    """The copy's path in the results folder."""
    size: int
    mtime_ns: int
    digest: str | None = None
    """SHA-256 from SHA256SUMS; None where the copy is not listed."""
    whole: bool = True
    """False for a part of a file, left by an interrupted transfer."""


@dataclass(frozen=True, slots=True)
class Here:
    """The local copies under a file's name and its numbered names."""

    copies: tuple[Copy, ...] = ()
    free: str = ""
    """The first unused of these names."""
    links: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a file, with local copies as its possible beginnings."""

    entry: Entry
    name: str
    """The file's path in the results folder, unless something else has it."""
    here: Here

    @property
    def newest_counts(self) -> bool:
        """Whether the file replaces the local copy."""
        return self.entry.path in _NEWEST_COUNTS

    @property
    def least(self) -> int:
        """Bytes that have to come at least: all that no local copy can be the beginning of."""
        return max(0, self.entry.size - max((copy.size for copy in self.here.copies), default=0))


@dataclass(slots=True)
class FetchPlan:
    """The actions for one node."""

    kept: list[Copy] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Reason by path, for entries without content of the job: sockets, links to elsewhere."""
    left_out: dict[str, str] = field(default_factory=dict)
    matched: int = 0
    """Number of entries of working folders that fit the pattern."""


@dataclass(frozen=True, slots=True)
class Landing:
    """The destination of a file's bytes, once the node has reported which copies it begins with."""

    source: Copy | None
    """The copy that the bytes continue; None when they are the whole file."""
    name: str
    replaces: Copy | None = None
    """The copy of that name, which the file continues."""


def plan_fetch(
    node: str,
    entries: Iterable[Entry],
    here: Callable[[str], Here],
    *,
    is_head: bool,
    taken: Callable[[str], bool],
    problems: Callable[[Sequence[str]], Sequence[str]],
    match: str = "",
) -> FetchPlan:
    """Return the plan for the listing of ``node``.

    ``here`` returns the local copies under a name; ``taken`` claims a log's name and returns whether another
    node has it; ``problems`` returns why each of these names must not be written here, "" where it may be.
    Of a working folder, only what fits the pattern ``match`` is fetched, unless that is empty. No entry ever
    gets a path outside the results folder.
    """
    plan = FetchPlan()
    placed = list(_placed(plan, node, entries, match, is_head=is_head, taken=taken))
    listed: set[str] = set()
    for (entry, name), problem in zip(placed, problems([name for _, name in placed]), strict=True):
        if problem:
            plan.left_out[entry.path] = problem
            continue
        if entry.kind in ("f", "l"):
            if name in listed:  # each would be compared with all that were numbered before it
                plan.left_out[entry.path] = "is listed more than once: the first of them counts"
                continue
            listed.add(name)
        if entry.kind == "d":
            plan.folders.append(name)
        elif entry.kind == "f":
            _file(plan, Wanted(entry, name, here(name)))
        elif entry.kind == "l":
            _link(plan, entry, here(name))
        elif entry.kind == "o":
            plan.skipped[entry.path] = entry.text
        else:
            plan.left_out[entry.path] = entry.text
    return plan


def _placed(
    plan: FetchPlan,
    node: str,
    entries: Iterable[Entry],
    match: str,
    *,
    is_head: bool,
    taken: Callable[[str], bool],
) -> Iterator[tuple[Entry, str]]:
    """Yield each entry with its path in the results folder; note in the plan which have none."""
    for entry in entries:
        if match and _is_unmatched(entry.path, match):
            continue
        plan.matched += match != "" and is_work(entry.path.partition("/")[0])
        name = _place(node, entry.path, is_head=is_head)
        if name is None:
            plan.left_out[entry.path] = "its path leads out of the job's folder"
            continue
        if not (_is_usable(entry.path) and (entry.kind != "l" or _is_usable(entry.text)) and entry.size >= 0):
            plan.left_out[entry.path[:_LONGEST]] = (
                "its path, target or size is none that a file can have here"
            )
            continue
        if entry.kind != "d" and name.startswith("logs/") and taken(name):
            name = f"logs/{node}/{name.removeprefix('logs/')}"
        yield entry, name


def _is_unmatched(path: str, match: str) -> bool:
    """Return whether a path in a working folder does not fit the pattern, and is in no folder that does.

    >>> [_is_unmatched(path, "check*") for path in ("work/checkpoints/a", "work/log", "outputs/log")]
    [False, True, False]
    """
    top, _, inside = path.partition("/")
    return is_work(top) and not (fnmatchcase(inside, match) or fnmatchcase(inside, f"{match.rstrip('/')}/*"))


def _is_usable(path: str) -> bool:
    r"""Return whether this machine can have a file at the path.

    >>> _is_usable("outputs/a b\udcff"), _is_usable(""), _is_usable("a\0b"), _is_usable("\ud800")
    (True, False, False, False)
    """
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return 0 < size <= _LONGEST and "\0" not in path and path.count("/") < _DEEPEST


def _place(node: str, path: str, *, is_head: bool) -> str | None:
    """Return the path in the results folder of a node's path; None when it would lie outside.

    >>> [_place("node000001", path, is_head=False) for path in ("outputs/a/b", "logs/rank-1.log", "../x")]
    ['outputs/node000001/a/b', 'logs/rank-1.log', None]
    """
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        return None
    if parts[0] == "outputs" or is_work(parts[0]):
        return "/".join([parts[0], node, *parts[1:]])
    if parts[0] in TREES:
        return path
    if path in RECORDS and is_head:
        return path
    return f"exits/{node}.jsonl" if path == _OWN_RECORD else None


def _file(plan: FetchPlan, wanted: Wanted) -> None:
    entry = wanted.entry
    for copy in wanted.here.copies:
        # As rsync does: a change of a file changes its time. Anything else is compared by its digest.
        if copy.whole and copy.digest and (copy.size, copy.mtime_ns) == (entry.size, entry.mtime_ns):
            plan.kept.append(copy)
            return
    plan.wanted.append(wanted)


def _link(plan: FetchPlan, entry: Entry, here: Here) -> None:
    ups = 0
    parts = entry.text.split("/")
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    # A ".." after a link leads to the parent of the link's target: only leading ones are predictable.
    if entry.text.startswith("/") or ".." in parts[ups:] or ups > entry.path.count("/") - 1:
        plan.skipped[entry.path] = f"is a link that leads out of the job's folder, to {entry.text}"
    elif entry.text not in here.links:
        plan.links.append((here.free, entry.text))


def landing(wanted: Wanted, matched: Sequence[int], size: int) -> Landing | Copy:
    """Return where a file of now ``size`` bytes goes that begins with the copies of these indices
    (``matched``); the copy itself when it is the whole file already."""
    true = sorted(
        (wanted.here.copies[number] for number in matched), key=lambda copy: (copy.size, copy.whole)
    )
    for copy in true:
        if copy.whole and copy.size == size:
            return copy
    source = true[-1] if true else None
    replaced = next((copy for copy in reversed(true) if copy.whole), None)
    if replaced is None and wanted.newest_counts:
        replaced = next((copy for copy in wanted.here.copies if copy.name == wanted.name), None)
    if replaced is not None:
        return Landing(source, replaced.name, replaced)
    return Landing(source, wanted.here.free)


def numbered(name: str, number: int) -> str:
    """Return the name of the file's ``number``-th content.

    >>> numbered("logs/rank-0.log", 1), numbered("logs/rank-0.log", 2)
    ('logs/rank-0.log', 'logs/rank-0.log.~2~')
    """
    return name if number == 1 else f"{name}.~{number}~"
