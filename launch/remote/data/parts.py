"""A dataset as files and parts: what is fetched at a time, and the same on every node.

A part is at most :func:`part_size` bytes of one file, or several small files. Its size lets a dataset have
about a thousand parts: the last ones are still downloaded while nothing else is left to pass on, so they have
to be a small share of the whole. However large a server says that a file is, its parts fit into memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Extent", "File", "Part", "check_names", "cut", "dataset_id", "part_size"]

_SMALLEST, _LARGEST, _COUNT = 1 << 20, 64 << 20, 1024
_MOST_PARTS = 1 << 18
"""Parts of the largest files: at 64 MiB each they are 16 TiB, and take some 80 MB of memory."""
_MOST_FILES = 256
"""Files of one part: each costs a request."""
_ID_DIGITS = 16
_LONGEST_NAME, _LONGEST_PATH = 255, 3000


class File(NamedTuple):
    """A file of a dataset; ``etag`` is what storage names its content by."""

    path: str
    size: int
    etag: str


class Extent(NamedTuple):
    """A range of one file, by its number."""

    file: int
    start: int
    size: int


class Part(NamedTuple):
    """Ranges of files, one after the other."""

    extents: tuple[Extent, ...]
    size: int


def dataset_id(url: str, files: Iterable[File]) -> str:
    """Return the id of these contents at this address: 16 hexadecimal digits."""
    text = json.dumps([url, sorted(files)], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]


def check_names(url: str, files: Sequence[File]) -> None:
    """Raise ValueError for names that no folder can have, or that lead out of it."""
    seen: set[str] = set()
    folders: set[str] = set()
    for file in files:
        names = file.path.split("/")
        if any(name in ("", ".", "..") for name in names) or "\0" in file.path:
            raise ValueError(f"{url}: {file.path!r} is not a name that a file can have; rename it in storage")
        if len(file.path.encode("utf-8", "surrogateescape")) > _LONGEST_PATH or any(
            len(name.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for name in names
        ):
            raise ValueError(f"{url}: {file.path[:80]!r}... is longer than a file's name can be")
        if file.path in seen:
            raise ValueError(f"{url}: {file.path!r} is listed twice")
        seen.add(file.path)
        folders.update("/".join(names[:depth]) for depth in range(1, len(names)))
    both = min(seen & folders, default=None)
    if both is not None:
        raise ValueError(f"{url}: {both!r} is a file and a folder; rename one in storage")


def part_size(total: int) -> int:
    """Return the bytes of a part of a dataset of ``total`` bytes.

    >>> part_size(0), part_size(10_000_000_000), part_size(10**13), part_size(10**15)
    (1048576, 9765625, 67108864, 3814697266)
    """
    return max(_SMALLEST, min(_LARGEST, total // _COUNT), -(-total // _MOST_PARTS))


def cut(files: Sequence[File], *, is_cut: bool = True) -> list[Part]:
    """Return the parts of a dataset; those of files that cannot be cut hold whole files. Empty files are in
    no part.

    >>> cut([File("a", 3, ""), File("b", 0, ""), File("c", 2, "")])
    [Part(extents=(Extent(file=0, start=0, size=3), Extent(file=2, start=0, size=2)), size=5)]
    """
    limit = part_size(sum(file.size for file in files))
    parts: list[Part] = []
    small: list[Extent] = []
    held = 0

    def close() -> None:
        nonlocal small, held
        if small:
            parts.append(Part(tuple(small), held))
            small, held = [], 0

    for number, file in enumerate(files):
        if file.size >= limit:
            step = limit if is_cut else file.size
            for start in range(0, file.size, step):
                size = min(step, file.size - start)
                parts.append(Part((Extent(number, start, size),), size))
        elif file.size:
            if held + file.size > limit or len(small) == _MOST_FILES:
                close()
            small.append(Extent(number, 0, file.size))
            held += file.size
    close()
    return parts
