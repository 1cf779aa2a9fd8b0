"""The manifest of a folder on a node: its files are made read-only and read once."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from launch.remote.store.stored_file import digest_of

__all__ = ["manifest_of"]

_WRITABLE = 0o222


def manifest_of(folder: str) -> bytes:
    """Return the manifest of a folder, whose files this makes read-only. Raise OSError.

    Sockets, pipes and devices are left out.
    """
    top = os.fsencode(folder)
    files, links, empty = [], [], []
    for entry in _walk(top):
        path = os.path.relpath(entry.path, top)
        if entry.is_symlink():
            links.append((path, os.readlink(entry.path)))
        elif entry.is_dir(follow_symlinks=False):
            empty.append(path)
        elif entry.is_file(follow_symlinks=False):
            found = entry.stat(follow_symlinks=False)
            if found.st_mode & _WRITABLE:
                os.chmod(entry.path, stat.S_IMODE(found.st_mode) & ~_WRITABLE)
            files.append((path, entry.path, found))
    # Digests are most of the work, and made without the interpreter's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        paths, sizes = [full for _, full, _ in files], [found.st_size for _, _, found in files]
        digests = list(pool.map(digest_of, paths, sizes, chunksize=64))
    entries: list[list[object]] = []
    for (path, full, found), digest in zip(files, digests):  # noqa: B905  (Python 3.8)
        if digest is None:
            raise OSError(f"{os.fsdecode(full)} cannot be read, or changed meanwhile")
        entries.append(
            ["f", os.fsdecode(path), digest, found.st_size, int(bool(found.st_mode & stat.S_IXUSR))]
        )
    entries += [["l", os.fsdecode(path), os.fsdecode(target)] for path, target in links]
    # A container's mount points: its runtime cannot make them in an image that it must not change.
    entries += [["d", os.fsdecode(path)] for path in empty]
    return json.dumps(sorted(entries, key=lambda entry: str(entry[1])), separators=(",", ":")).encode()


def _walk(folder: bytes) -> Iterator[os.DirEntry[bytes]]:
    """Yield what is in a folder and below, of folders only those that are empty."""
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            below = iter(_walk(entry.path))
            first = next(below, None)
            yield first or entry
            yield from below
        else:
            yield entry
