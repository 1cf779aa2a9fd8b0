"""The record of the last push of a source: how large its folders were, and what was reported as left out.

It is kept beside the source's cache of hashes, and lets a push report what grew before anything is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from launch.code.snapshot import Entry, Snapshot
from launch.remote.base.files import replace_file
from launch.remote.base.messages import size

__all__ = ["LastPush", "bytes_by_folder", "growth_notice"]

_MUCH = 100_000_000
"""Bytes that a push has to grow by, to be reported."""
_TIMES = 2
"""Ratio to the last push that it has to exceed, too."""
_SHOWN = 3
_DEPTH = 2


@dataclass(frozen=True, slots=True)
class LastPush:
    """The record; empty before a source's first push."""

    folders: Mapping[str, int] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    """Groups of :class:`~launch.code.left_out.LeftOut`."""

    @classmethod
    def read(cls, file: Path) -> LastPush:
        """Return the record in ``file``; an empty one where it is missing or damaged."""
        try:
            known = json.loads(file.read_bytes())
            folders = {str(name): int(count) for name, count in known["folders"].items()}
            return cls(folders, frozenset(map(str, known["left_out"])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def write(self, file: Path) -> None:
        """Write the record; without it, the next push reports again what it leaves out."""
        text = json.dumps({"folders": dict(self.folders), "left_out": sorted(self.left_out)})
        with suppress(OSError):
            replace_file(str(file), text.encode(), outlives_machine=False)


def bytes_by_folder(entries: Iterable[Entry]) -> dict[str, int]:
    """Return the bytes in each folder to the second level, and those of each file outside of folders.

    >>> bytes_by_folder([Entry("a/b/c/one", size=1), Entry("a/b/two", size=2), Entry("y", size=4)])
    {'a/b': 3, 'y': 4}
    """
    found: dict[str, int] = {}
    for entry in entries:
        *folders, _ = entry.path.split("/")
        name = "/".join(folders[:_DEPTH]) or entry.path
        found[name] = found.get(name, 0) + entry.size
    return found


def growth_notice(last: LastPush, snapshot: Snapshot) -> str | None:
    """Return a line with the folders that grew most, where the snapshot is much larger than the last one."""
    before = sum(last.folders.values())
    if not last.folders or snapshot.size <= max(_TIMES * before, before + _MUCH):
        return None
    grown = {
        name: count - last.folders.get(name, 0) for name, count in bytes_by_folder(snapshot.entries).items()
    }
    most = sorted(grown.items(), key=lambda one: -one[1])[:_SHOWN]
    parts = ", ".join(f"{name}: {size(more)}" for name, more in most if more > 0)
    return f"{snapshot.source} grew from {size(before)} to {size(snapshot.size)} since its last push; {parts}"
