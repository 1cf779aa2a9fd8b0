"""One file of a snapshot on this node: whether it is as it was made, and how a new snapshot shares it.

Files of snapshots are read-only. A new snapshot shares an unchanged file with an older one: as a clone where
the file system can, else as a hard link. A clone has blocks of its own as soon as either file is written. A
hard link is made only where the file's mode keeps this node's user from writing to it: root may write to any
file. Working folders of jobs are copies or clones, never hard links (:mod:`launch.remote.node.work_dir`).

The owner of a file can make it writable and change it in place. So a file is shared only while its inode,
size and modification time are those recorded when its snapshot was made, and its mode is read-only. Any other
file is read, compared by digest and copied. Change times cannot serve: every link made or removed sets them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import NamedTuple

from launch.remote.base.files import FICLONE

__all__ = ["Sharing", "StoredFile", "stamp_of"]

_READABLE = 0o444
_EXECUTABLE = 0o555
_WRITABLE = 0o222


def stamp_of(path: bytes) -> list[int]:
    """Return a file's stamp: its inode and its modification time in nanoseconds. Raise OSError."""
    found = os.lstat(path)
    return [found.st_ino, found.st_mtime_ns]


class StoredFile(NamedTuple):
    """A file of a whole snapshot, as its manifest describes it."""

    path: bytes
    size: int
    executable: bool
    stamp: list[int] | None
    """Its stamp when the snapshot was made; None when that is not recorded."""

    def is_unchanged(self) -> bool:
        """Return whether the file's status shows that nobody has written to it; read nothing."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        is_sealed = stat.S_ISREG(found.st_mode) and not found.st_mode & _WRITABLE
        return is_sealed and found.st_size == self.size and [found.st_ino, found.st_mtime_ns] == self.stamp


class Sharing:
    """Creation of the files of one new snapshot, from nothing or from stored files."""

    def __init__(self, folder: int) -> None:
        """``folder`` is a descriptor of the new snapshot's folder, to which paths are relative."""
        self._folder = folder
        self._clones = True
        """Whether the file system may clone: it is not asked again once it refused."""

    def create(self, path: bytes, executable: bool) -> int:
        """Return a descriptor to write a new read-only file with. Raise OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(path, flags, _EXECUTABLE if executable else _READABLE, dir_fd=self._folder)

    def share(self, stored: StoredFile, path: bytes, executable: bool) -> bool:
        """Make a new file that shares the stored one's blocks; return whether that was possible."""
        if self._clones:
            self._clones = self._clone(stored, path, executable)
        return self._clones or self._link(stored, path, executable)

    def _clone(self, stored: StoredFile, path: bytes, executable: bool) -> bool:
        try:
            with open(stored.path, "rb") as source, os.fdopen(self.create(path, executable), "wb") as target:
                fcntl.ioctl(target, FICLONE, source.fileno())
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path, dir_fd=self._folder)
            return False
        return True

    def _link(self, stored: StoredFile, path: bytes, executable: bool) -> bool:
        if stored.executable != executable or os.access(stored.path, os.W_OK):
            return False
        try:
            os.link(stored.path, path, dst_dir_fd=self._folder, follow_symlinks=False)
        except OSError:  # a file system without hard links, or too many of them
            return False
        return True
