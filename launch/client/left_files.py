"""What jobs left in their working folders, outside of their outputs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from launch.client.rpc import ask
from launch.host import Host
from launch.nodeset import fold
from launch.numbers import counted
from launch.remote.base import payloads
from launch.remote.base.messages import size

__all__ = ["LeftFiles", "left_on", "left_words", "merged"]

_SHOWN = 5
"""Files that are named."""


@dataclass(frozen=True, slots=True)
class LeftFiles:
    """Files of one job in its working folders on these nodes."""

    files: int
    bytes: int
    largest: tuple[tuple[str, int], ...]
    """Paths in the working folder, and sizes in bytes."""
    nodes: tuple[str, ...]
    is_whole: bool = True
    """Whether all of the folders were read."""

    @classmethod
    def of(cls, node: str, answer: payloads.LeftFiles) -> LeftFiles | None:
        """Return what a node reports; None where that is nothing."""
        if not answer["files"] and answer["whole"]:
            return None
        return cls(answer["files"], answer["bytes"], tuple(answer["largest"]), (node,), answer["whole"])

    def __str__(self) -> str:
        """Return it in words.

        >>> print(LeftFiles(2, 1012, (("a/last.ckpt", 1000), ("b", 12)), ("node000000", "node000001")))
        2 files, 1.0 kB, on node[000000-000001]: a/last.ckpt (1.0 kB), b (12 B)
        >>> print(LeftFiles(9, 1012, (("a\\n", 1000),), ("node000000",), is_whole=False))
        at least 9 files, 1.0 kB, on node000000, the largest: 'a\\n' (1.0 kB)
        """
        named = ", ".join(f"{_printable(path)} ({size(count)})" for path, count in self.largest[:_SHOWN])
        colon = ": " if self.files <= _SHOWN else ", the largest: "
        least = "" if self.is_whole else "at least "
        where = f"{least}{counted(self.files, 'file')}, {size(self.bytes)}, on {fold(self.nodes)}"
        return f"{where}{colon}{named}" if named else where


def _printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)


def left_on(host: Host, remote: str, job: str = "") -> dict[str, LeftFiles]:
    """Return what the job, or each job, left on one node, by job."""
    answer = ask(payloads.LeftAnswer, host, remote, "left", *filter(None, [job]))
    found = ((name, LeftFiles.of(host.name, one)) for name, one in answer["jobs"].items())
    return {name: one for name, one in found if one is not None}


def merged(parts: Iterable[LeftFiles]) -> LeftFiles | None:
    """Return what a job left on all nodes; None for nothing."""
    found = list(parts)
    if not found:
        return None
    largest = {path: count for part in found for path, count in sorted(part.largest, key=lambda one: one[1])}
    return LeftFiles(
        sum(part.files for part in found),
        sum(part.bytes for part in found),
        tuple(heapq.nlargest(_SHOWN, largest.items(), key=lambda one: one[1])),
        tuple(dict.fromkeys(node for part in found for node in part.nodes)),
        all(part.is_whole for part in found),
    )


def left_words(left: Mapping[str, LeftFiles | str]) -> list[str]:
    """Return a line for each job that left files, with the command that copies them."""
    return [
        f"job {job} left in its working folders {found}; `fab collect {job} --work` copies them"
        for job, found in left.items()
    ]
