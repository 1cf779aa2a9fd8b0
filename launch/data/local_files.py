"""Files of this machine on their way to storage: which they are, and their MD5, which blobs are known by."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.access import count_visit, is_within, open_resolved
from launch.credentials import Credentials, known_credentials
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


def list_files(root: Path, allowed: Sequence[Path] = ()) -> list[LocalFile]:
    """Return the file ``root``, or the files below the folder, by name; links are followed within the folder
    and into ``allowed``, resolved paths.

    Raise :class:`~launch.errors.InputError` for another link, for credentials
    (:mod:`launch.credentials`), for what is neither a file nor a folder, for a circle of links, and for a
    name that is not UTF-8.
    """
    real, credentials = Path(os.path.realpath(root)), known_credentials()
    credentials.refuse("data", real, root)
    try:
        if root.is_dir():
            if found := credentials.within(real):
                credentials.refuse("data", Path(os.path.realpath(found)), found)
            found_files = _below(real, "", (), (real, *allowed), credentials, Counter())
            return sorted(found_files, key=lambda one: one.name)
        return [_file(root.name, real, real.stat())]
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise InputError("data", str(error.filename or root), problem, "name a file or a folder") from None


def _below(
    folder: Path,
    prefix: str,
    above: tuple[tuple[int, int], ...],
    readable: Sequence[Path],
    credentials: Credentials,
    visits: Counter[tuple[int, int]],
) -> Iterator[LocalFile]:
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise InputError("data", str(folder), "is a link to a folder that contains it", "remove the link")
    count_visit(visits, here, "data", str(folder))
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            status = os.stat(entry.path)  # noqa: PTH116  (an error names the link)
            path, name = Path(os.path.realpath(entry.path)), prefix + entry.name
            if entry.is_symlink() and not is_within(path, readable):
                problem = f"is a link that leaves the folder, to {path}, and is not followed"
                remedy = (
                    "replace it by what is to be sent, or give --allow-path with the folder that is meant"
                )
                raise InputError("data", entry.path, problem, remedy)
            if entry.is_symlink() or entry.inode() in credentials.inodes:
                credentials.refuse("data", path, Path(entry.path))
            try:
                name.encode()
            except UnicodeEncodeError:
                raise InputError("data", ascii(name), "has a name that is not UTF-8", "rename it") from None
            if stat.S_ISDIR(status.st_mode):
                yield from _below(path, f"{name}/", (*above, here), readable, credentials, visits)
            else:
                yield _file(name, path, status)


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
        """Return the file's MD5. Raise as :func:`launch.access.open_resolved`."""
        key = [*file.status]
        entry = self._known.get(str(file.path))
        if isinstance(entry, list) and entry[:-1] == key:
            with suppress(ValueError, TypeError):
                return bytes.fromhex(str(entry[-1]))
        digest = hashlib.md5(usedforsecurity=False)  # what blobs are known by
        with open(open_resolved(str(file.path)), "rb") as stream:  # noqa: PTH123  (a handle)
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
