"""Files of this machine on their way to storage: which they are, and their MD5, which blobs are known by."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.errors import InputError
from launch.remote.base.files import replace_file

__all__ = ["Digests", "LocalFile", "list_files"]

_CHUNK = 1 << 20
_SETTLED_NS = 100_000_000
"""Nanoseconds after a change before an MD5 is kept: the same tick of the clock may hide another change."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to upload."""

    name: str
    """Its path below the folder, with slashes."""
    path: Path
    size: int
    status: tuple[int, int, int]
    """Size, time of its last change in nanoseconds and inode: whether it is still the same."""

    def now(self) -> LocalFile:
        """Return the file as it is now. Raise OSError."""
        return _file(self.name, self.path, self.path.stat())


def list_files(root: Path) -> list[LocalFile]:
    """Return the file ``root``, or the files below the folder, by name; links are followed.

    Raise :class:`~launch.errors.InputError` for what is neither a file nor a folder, for a circle of links,
    and for a name that is not UTF-8.
    """
    try:
        if root.is_dir():
            return sorted(_below(root, "", ()), key=lambda one: one.name)
        return [_file(root.name, root, root.stat())]
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise InputError("data", str(error.filename or root), problem, "name a file or a folder") from None


def _below(folder: Path, prefix: str, above: tuple[tuple[int, int], ...]) -> Iterator[LocalFile]:
    here = folder.stat()
    if (here.st_dev, here.st_ino) in above:
        raise InputError("data", str(folder), "is a link to a folder that contains it", "remove the link")
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            path, name = Path(entry.path), prefix + entry.name
            try:
                name.encode()
            except UnicodeEncodeError:
                raise InputError("data", ascii(name), "has a name that is not UTF-8", "rename it") from None
            if entry.is_dir():
                yield from _below(path, f"{name}/", (*above, (here.st_dev, here.st_ino)))
            else:
                yield _file(name, path, path.stat())


def _file(name: str, path: Path, status: os.stat_result) -> LocalFile:
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            "data", str(path), "is neither a file nor a folder", "remove it from what is uploaded"
        )
    return LocalFile(name, path, status.st_size, (status.st_size, status.st_mtime_ns, status.st_ino))


class Digests:
    """MD5 of files, kept in a file as long as they stay the same."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._known: dict[str, list[object]] = {}
        with suppress(OSError, ValueError, TypeError):
            found = json.loads(cache.read_bytes())
            self._known = found if isinstance(found, dict) else {}

    def of(self, file: LocalFile) -> bytes:
        """Return the file's MD5. Raise OSError."""
        key = [*file.status]
        entry = self._known.get(str(file.path))
        if isinstance(entry, list) and entry[:-1] == key:
            with suppress(ValueError, TypeError):
                return bytes.fromhex(str(entry[-1]))
        digest = hashlib.md5(usedforsecurity=False)  # what blobs are known by
        with file.path.open("rb") as stream:
            while data := stream.read(_CHUNK):
                digest.update(data)
        settled = time.time_ns() - file.status[1] > _SETTLED_NS
        if settled and file.now().status == file.status:
            self._known[str(file.path)] = [*key, digest.hexdigest()]
        return digest.digest()

    def save(self) -> None:
        """Write the cache; one that cannot be written only costs time."""
        with suppress(OSError):
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            replace_file(str(self._cache), json.dumps(self._known).encode())
