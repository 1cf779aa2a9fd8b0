"""One file of a snapshot on this node, and how a new snapshot shares it.

Files of snapshots are read-only. A new snapshot shares a file with an older one: as a clone where the file
system can, else as a hard link. A clone has blocks of its own as soon as either file is written. A hard link
is made only where the file's mode keeps this node's user from writing to it: root may write to any file.
Working folders of jobs are copies or clones, never hard links (:mod:`launch.remote.node.work_dir`).

The owner of a file can make it writable, change it in place and set its size, mode and times back. So its
content is read and compared by digest before a new snapshot has it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from launch.remote.base.files import FICLONE

__all__ = ["CHUNK", "Sharing", "StoredFile", "contents_of", "digest_of"]

CHUNK = 256 * 1024
_READABLE = 0o444
_EXECUTABLE = 0o555
_WRITABLE = 0o222


class StoredFile(NamedTuple):
    """A file of a whole snapshot, as its manifest describes it."""

    path: bytes
    executable: bool

    def is_sealed(self) -> bool:
        """Return whether it is a regular file that nobody may write to."""
        try:
            mode = os.lstat(self.path).st_mode
        except OSError:
            return False
        return stat.S_ISREG(mode) and not mode & _WRITABLE


def contents_of(path: bytes, size: int, digest: Any) -> Iterator[bytes]:
    """Yield a stored file's content in pieces, and update ``digest`` by it. Raise OSError for what is no
    regular file of ``size`` bytes: a job can make a sparse file of any size. One that grows meanwhile is read
    one byte beyond ``size`` at most."""
    # A pipe in the file's place would hold up whoever opens it to read.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found, left = os.fstat(fd), size
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise OSError(errno.EINVAL, f"is no regular file of {size} bytes", path)
        while left >= 0:
            data = os.read(fd, min(CHUNK, left + 1))
            if not data:
                break
            digest.update(data)
            left -= len(data)
            yield data
    finally:
        os.close(fd)


def digest_of(path: bytes, size: int) -> str | None:
    """Return the SHA-256 of a file's content; ``None`` when it cannot be read or has not ``size`` bytes."""
    from hashlib import sha256  # loads OpenSSL: a launch checks only which snapshots are here

    digest = sha256()
    try:
        for _ in contents_of(path, size, digest):
            pass
    except OSError:
        return None
    return digest.hexdigest()


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
        if not stored.is_sealed():
            return False
        if self._clones:
            self._clones = self._clone(stored, path, executable)
        return self._clones or self._link(stored, path, executable)

    def _clone(self, stored: StoredFile, path: bytes, executable: bool) -> bool:
        try:
            source = os.open(stored.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(source, "rb"), os.fdopen(self.create(path, executable), "wb") as target:
                fcntl.ioctl(target, FICLONE, source)
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
