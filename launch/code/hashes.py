"""SHA-256 of files' contents, cached as long as a file's status stays the same."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.code.private_keys import LARGEST, may_hold_key

__all__ = ["Changed", "Content", "Hashes"]

_SETTLED_NS = 100_000_000
"""Nanoseconds after a change before a hash is cached: until then the same tick may hide another change."""

_CHUNK = 1 << 20

_READINGS = 3
"""Maximum number of readings of a file that changes meanwhile."""


class Changed(OSError):
    """A file changed during every reading."""


@dataclass(frozen=True, slots=True)
class Content:
    """Facts about a file's content."""

    sha256: str
    size: int
    may_hold_key: bool
    """Whether a private key may be in it, to be compared with those that never leave this machine."""


def _read(full: str, status: os.stat_result) -> Content:
    """Read the content of the file that has this status. Raise :class:`Changed` for another file in its
    place, and when it changes during every reading."""
    for _ in range(_READINGS):
        digest = hashlib.sha256()
        size = 0
        beginning = b""
        # O_NONBLOCK, so that a pipe in the file's place does not wait for a writer; a str, as 10,000 Path
        # objects cost as much as the hashes.
        handle = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb", buffering=0) as stream:  # noqa: PTH123  (a handle)
            before = os.fstat(handle)
            is_same = (before.st_dev, before.st_ino) == (status.st_dev, status.st_ino)
            if not is_same or not stat.S_ISREG(before.st_mode):
                raise Changed
            while data := stream.read(_CHUNK):
                digest.update(data)
                size += len(data)
                if size <= LARGEST:
                    beginning += data
            after = os.fstat(handle)
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return Content(digest.hexdigest(), size, size <= LARGEST and may_hold_key(beginning))
    raise Changed


class Hashes:
    """Hashes by path, cached as long as the file's status stays the same."""

    def __init__(self, cache: Path | None, root: Path) -> None:
        self._cache, self._root = cache, str(root)
        self._old: dict[str, list[int | str]] = {}
        self._new: dict[str, list[int | str]] = {}
        self._changed = False
        if cache is not None:
            try:
                known = json.loads(cache.read_bytes())
                files = known["files"].items() if known["root"] == self._root else ()
                self._old = {path: entry for path, entry in files if isinstance(entry, list)}
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self._old = {}  # a cache is only ever a shortcut

    def of(self, path: str, full: str, status: os.stat_result) -> Content:
        """Return the content of ``path``, whose full path is ``full``. Raise OSError and :class:`Changed`."""
        key: list[int | str] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        old = self._old.get(path)
        if old is not None and old[:-2] == key:
            self._new[path] = old
            return Content(str(old[-2]), status.st_size, bool(old[-1]))
        content = _read(full, status)
        age = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns)
        if content.size == status.st_size and age > _SETTLED_NS:
            self._new[path] = [*key, content.sha256, int(content.may_hold_key)]
            self._changed = True
        return content

    def save(self) -> None:
        """Write the cache; one that cannot be written only costs time."""
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
