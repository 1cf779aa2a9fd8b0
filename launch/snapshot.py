"""One version of a code tree, planned on the operator's machine before anything is sent.

The plan is a manifest: every file with its content's SHA-256, its size and whether it is executable, and
every symbolic link with its target. Times, owners and other mode bits are not part of it, so equal trees
have equal ids wherever they were checked out. Folders without files are left out, as git leaves them out.
Links in code are kept as links, whatever they point to: ``data -> /mnt/data`` means the node's ``/mnt/data``.
Data is taken whole: no ignore file is asked, and links are followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import InputError
from launch.ignore import Rules, read_rules

__all__ = ["EMPTY", "Entry", "Snapshot", "plan_data", "plan_snapshot"]

_SETTLED_NS = 100_000_000
"""A file changed so shortly before it was read may change again within one tick of its clock."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or symbolic link."""

    path: str
    """From the root, with slashes; bytes that are not UTF-8 as surrogate escapes."""
    sha256: str = ""
    """Of a file's content; empty for a link."""
    size: int = 0
    executable: bool = False
    target: str | None = None
    """Where a link points; ``None`` for a file."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What will be pushed from ``root``."""

    root: Path
    id: str
    """First 16 hexadecimal digits of the manifest's SHA-256."""
    entries: tuple[Entry, ...] = field(repr=False)
    manifest: bytes = field(repr=False)
    """The entries as the nodes read them (``launch/remote/receive.py``)."""

    @property
    def size(self) -> int:
        """Bytes in all files together."""
        return sum(entry.size for entry in self.entries)

    def largest(self, count: int = 3) -> list[Entry]:
        """The biggest files, to tell a user what makes a push slow."""
        return sorted(self.entries, key=lambda entry: -entry.size)[:count]

    def blobs(self) -> list[Entry]:
        """One entry for each distinct, non-empty content, in the order the nodes number them."""
        seen: dict[str, Entry] = {}
        for entry in self.entries:
            if entry.target is None and entry.size:
                seen.setdefault(entry.sha256, entry)
        return list(seen.values())


def plan_snapshot(root: Path, cache: Path | None = None) -> Snapshot:
    """The tree below ``root`` as it is now, less what its ignore files name (:mod:`launch.ignore`).

    ``cache`` names a file that remembers hashes between calls: a tree of 10,000 files that did not
    change is planned in well under half a second, because no content is read. A file is taken as unchanged
    when its size, inode and both its times are the same.

    Raises :class:`~launch.errors.InputError` when there is nothing to push, or when an entry can be neither
    read nor represented (sockets, pipes, devices).
    """
    root = _absolute(root)
    if not root.is_dir():
        raise InputError("source", str(root), "no such folder", "give the folder that holds the code")
    remembered = _Hashes(cache, root)
    entries = list(_walk(root, remembered))
    if not entries:
        raise InputError(
            "source",
            str(root),
            "there is nothing to push in it",
            "choose another folder, or look at its .gitignore and .ranklift-ignore",
        )
    remembered.save()
    return _snapshot(root, entries)


def plan_data(path: Path, cache: Path | None = None) -> Snapshot:
    """A file, or a folder with all that is in it: what an ignore file names belongs to it, and what its
    links lead to. A file lies in the snapshot under its own name.

    ``cache`` is as for :func:`plan_snapshot`. Raises :class:`~launch.errors.InputError` when there is
    nothing, or something that can be neither read nor represented.
    """
    path = _absolute(path)
    root = path if path.is_dir() else path.parent
    remembered = _Hashes(cache, root)
    try:
        files = _files(root) if path.is_dir() else iter([(path.name, path.stat())])
        entries = [_file(root, name, status, remembered) for name, status in files]
    except OSError as error:
        raise _unreadable(os.path.relpath(error.filename or path, root), error) from error
    if not entries:
        raise InputError("source", str(path), "there is no file in it", "choose another folder")
    remembered.save()
    return _snapshot(root, entries)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  (a root that is a link stays what the user named)


def _snapshot(root: Path, found: list[Entry]) -> Snapshot:
    entries = sorted(found, key=lambda entry: os.fsencode(entry.path))
    manifest = json.dumps(
        [
            ["f", entry.path, entry.sha256, entry.size, int(entry.executable)]
            if entry.target is None
            else ["l", entry.path, entry.target]
            for entry in entries
        ],
        separators=(",", ":"),
    ).encode()
    return Snapshot(root, hashlib.sha256(manifest).hexdigest()[:16], tuple(entries), manifest)


EMPTY = _snapshot(Path(os.devnull), [])
"""No file at all: the working folder of a job without code."""


def _walk(root: Path, hashes: _Hashes) -> Iterator[Entry]:
    pending: list[tuple[str, Rules]] = [("", Rules())]
    while pending:
        folder, rules = pending.pop()
        try:
            with os.scandir(root / folder) as found:
                children = list(found)
            rules = read_rules(rules, root, folder, {child.name for child in children if child.is_file()})
        except OSError as error:
            raise _unreadable(folder or ".", error) from error
        for child in children:
            path = f"{folder}/{child.name}" if folder else child.name
            is_directory = child.is_dir(follow_symlinks=False)
            if child.name == ".git" or rules.ignored(path, is_directory):
                continue
            if is_directory:
                pending.append((path, rules))
                continue
            try:
                yield _entry(path, child, hashes)
            except OSError as error:
                raise _unreadable(path, error) from error


def _files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """All files below ``root``, links followed; raises InputError for links that lead in circles."""
    top = root.stat()
    pending: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset({(top.st_dev, top.st_ino)}))]
    while pending:
        folder, above = pending.pop()
        with os.scandir(root / folder) as found:
            children = list(found)
        for child in children:
            path = f"{folder}/{child.name}" if folder else child.name
            status = os.stat(child.path)  # noqa: PTH116  (a Path for each of many files costs more)
            if not stat.S_ISDIR(status.st_mode):
                yield path, status
                continue
            here = (status.st_dev, status.st_ino)
            if here in above:
                raise InputError("source", path, "a link that leads back to its own folder", "remove it")
            pending.append((path, above | {here}))


def _file(root: Path, path: str, status: os.stat_result, hashes: _Hashes) -> Entry:
    if not stat.S_ISREG(status.st_mode):
        raise InputError("source", path, "neither a file nor a folder", "remove it")
    sha256, size = hashes.of(path, str(root / path), status)
    return Entry(path, sha256, size, bool(status.st_mode & stat.S_IXUSR))


def _entry(path: str, child: os.DirEntry[str], hashes: _Hashes) -> Entry:
    if child.is_symlink():
        return Entry(path, target=os.readlink(child.path))  # noqa: PTH115  (Path would tidy the target)
    status = child.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            "source", path, "neither a file, a folder nor a link", "remove it or name it in .ranklift-ignore"
        )
    sha256, size = hashes.of(path, child.path, status)
    return Entry(path, sha256, size, bool(status.st_mode & stat.S_IXUSR))


def _unreadable(path: str, error: OSError) -> InputError:
    problem = f"cannot be read ({error.strerror})"
    return InputError("source", path, problem, "make it readable or name it in .ranklift-ignore")


class _Hashes:
    """Hashes by path, remembered as long as the file's status stays the same."""

    def __init__(self, cache: Path | None, root: Path) -> None:
        self._cache, self._root = cache, str(root)
        self._old: dict[str, list[int | str]] = {}
        self._new: dict[str, list[int | str]] = {}
        self._changed = False
        if cache is not None:
            try:
                known = json.loads(cache.read_bytes())
                self._old = known["files"] if known["root"] == self._root else {}
            except (OSError, ValueError, KeyError, TypeError):
                self._old = {}  # a cache is only ever a shortcut

    def of(self, path: str, full: str, status: os.stat_result) -> tuple[str, int]:
        key: list[int | str] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        old = self._old.get(path)
        if old is not None and old[:-1] == key:
            self._new[path] = old
            return str(old[-1]), status.st_size
        digest = hashlib.sha256()
        size = 0
        with open(full, "rb", buffering=0) as stream:  # noqa: PTH123  (10,000 Path objects cost as much as the hashes)
            while data := stream.read(_CHUNK):
                digest.update(data)
                size += len(data)
        age = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns)
        if size == status.st_size and age > _SETTLED_NS:
            self._new[path] = [*key, digest.hexdigest()]
            self._changed = True
        return digest.hexdigest(), size

    def save(self) -> None:
        if self._cache is None or not (self._changed or len(self._new) != len(self._old)):
            return
        with suppress(OSError):  # on a full disk the next push reads the files again
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{self._cache.name}.", dir=self._cache.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump({"root": self._root, "files": self._new}, stream, separators=(",", ":"))
                Path(name).replace(self._cache)
            except OSError:
                Path(name).unlink()
                raise
