"""What to fetch from a node, given what it has and what is here: pure, and the whole policy of a collect.

A file that is here already is never overwritten by anything but its own continuation: one that is equal is
kept, one that the node's file begins with is continued, and beside one that differs the node's gets a
numbered name. Where a file continues is the node's to say, which alone can read it
(:mod:`launch.remote.collect.send`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from launch.remote.collect.send import PLAN, RECORDS, TREES

__all__ = ["Copy", "Entry", "FetchPlan", "Here", "Landing", "Wanted", "landing", "numbered", "plan_fetch"]

_NEWEST_COUNTS = frozenset({"state.json", PLAN})
"""Replaced when the head has another one: an older state is of no use, and a plan never changes, but lacks
here the values that node code of an earlier version sends."""
_OWN_RECORD = "exits.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a node has. ``kind`` is f(ile), d(irectory), l(ink), o(ther), x: it cannot be read."""

    kind: str
    path: str
    size: int = 0
    mtime_ns: int = -1
    """-1 when it may still change unseen."""
    text: str = ""
    """A link's target; of an ``o`` and an ``x``, why it does not come."""

    @classmethod
    def from_list(cls, told: Sequence[Any]) -> Entry:
        """From the node's listing. Raises ValueError or TypeError for what is no entry."""
        kind, path, *rest = told
        if kind == "f":
            size, mtime_ns = rest
            return cls(kind, str(path), int(size), int(mtime_ns))
        return cls(str(kind), str(path), text=str(rest[0]) if rest else "")


@dataclass(frozen=True, slots=True)
class Copy:
    """A file here that may be the node's, or its beginning."""

    name: str
    """Its path in the results folder."""
    size: int
    mtime_ns: int
    digest: str | None = None
    """SHA-256 as SHA256SUMS has it; None where it has none."""
    whole: bool = True
    """False for the part of a file whose transfer was interrupted."""


@dataclass(frozen=True, slots=True)
class Here:
    """What is here under a file's name and under its numbered ones."""

    copies: tuple[Copy, ...] = ()
    free: str = ""
    """The first of these names that nothing has."""
    links: frozenset[str] = frozenset()
    """Targets of the symbolic links among what has these names."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Return a request for a file, with these copies as its possible beginnings."""

    entry: Entry
    name: str
    """Its path in the results folder, unless something else has that."""
    here: Here

    @property
    def newest_counts(self) -> bool:
        """Whether it replaces what is here."""
        return self.entry.path in _NEWEST_COUNTS


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What is to be done for one node."""

    kept: list[Copy] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    """Name and target of each link to make."""
    skipped: dict[str, str] = field(default_factory=dict)
    """What holds nothing of the job's: sockets, links to elsewhere."""
    left_out: dict[str, str] = field(default_factory=dict)
    """What should come and will not, and why."""


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a file's bytes go once the node has said which copies it begins with."""

    source: Copy | None
    """The copy that they continue; None when they are the whole file."""
    name: str
    """What the file is called in the end."""
    replaces: Copy | None = None
    """The copy of that name, of which the file is the continuation."""
    differs: bool = False
    """Whether the name is a numbered one, because something else has the file's own."""


def plan_fetch(
    node: str,
    entries: Iterable[Entry],
    here: Callable[[str], Here],
    *,
    is_head: bool,
    taken: Callable[[str], bool],
) -> FetchPlan:
    """Return the plan for what ``node`` has listed.

    ``here`` returns what is here under a name; ``taken`` claims a log's name, and says whether another node
    has it. Nothing ever gets a place outside the results folder.
    """
    plan = FetchPlan()
    for entry in entries:
        name = _place(node, entry.path, is_head=is_head)
        if name is None:
            plan.left_out[entry.path] = "its path leads out of the job's folder"
            continue
        if entry.kind != "d" and name.startswith("logs/") and taken(name):
            name = f"logs/{node}/{name.removeprefix('logs/')}"
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


def _place(node: str, path: str, *, is_head: bool) -> str | None:
    """Where a node's path lies in the results folder; None when that would not be within it.

    >>> [_place("node000001", path, is_head=False) for path in ("outputs/a/b", "logs/rank-1.log", "../x")]
    ['outputs/node000001/a/b', 'logs/rank-1.log', None]
    """
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        return None
    if parts[0] == "outputs":
        return "/".join(["outputs", node, *parts[1:]])
    if parts[0] in TREES:
        return path
    if path in RECORDS and is_head:
        return path
    return f"exits/{node}.jsonl" if path == _OWN_RECORD else None


def _file(plan: FetchPlan, wanted: Wanted) -> None:
    entry = wanted.entry
    for copy in wanted.here.copies:
        # As rsync does: whoever changes a file changes its time. Anything else is compared by its digest.
        if copy.whole and copy.digest and (copy.size, copy.mtime_ns) == (entry.size, entry.mtime_ns):
            plan.kept.append(copy)
            return
    plan.wanted.append(wanted)


def _link(plan: FetchPlan, entry: Entry, here: Here) -> None:
    ups = 0
    parts = entry.text.split("/")
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    # Beyond its leading ones, a ".." may undo another link instead of the folder that stands before it.
    if entry.text.startswith("/") or ".." in parts[ups:] or ups > entry.path.count("/") - 1:
        plan.skipped[entry.path] = f"is a link that leads out of the job's folder, to {entry.text}"
    elif entry.text not in here.links:
        plan.links.append((here.free, entry.text))


def landing(wanted: Wanted, matched: Sequence[int], size: int) -> Landing | Copy:
    """Where the file goes whose beginnings with these numbers are true and which now has ``size`` bytes.

    The copy itself when it is the whole file already. ``matched`` counts among ``wanted.here.copies``.
    """
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
    return Landing(source, wanted.here.free, differs=wanted.here.free != wanted.name)


def numbered(name: str, number: int) -> str:
    """The name of the file's ``number``-th content.

    >>> numbered("logs/rank-0.log", 1), numbered("logs/rank-0.log", 2)
    ('logs/rank-0.log', 'logs/rank-0.log.~2~')
    """
    return name if number == 1 else f"{name}.~{number}~"
