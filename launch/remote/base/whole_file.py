"""Atomic replacement of files: readers, even after a crash of the machine, see the old or the new file."""

from __future__ import annotations

import os

__all__ = ["FRESH", "keep_name", "replace_file", "temporary_name", "write_all"]

FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a file that must not exist yet, not even as a link."""


def temporary_name(path: str) -> str:
    """Return a unique name beside ``path``; a pid is not unique among nodes that share the folder."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".new-{name}.{os.urandom(8).hex()}")


def write_all(fd: int, data: bytes) -> None:
    """Write all data, in as many pieces as a pipe or a disk takes. Raise OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def replace_file(path: str, data: bytes, *, mode: int = 0o600, outlives_machine: bool = True) -> None:
    """Replace ``path`` by a file with ``data``, or change nothing and raise OSError.

    The data are synced to disk before the rename, so that a crash of the machine leaves no empty file. The
    sync takes some milliseconds; set ``outlives_machine`` to False for data that are void after a reboot.
    """
    temporary = temporary_name(path)
    try:
        fd = os.open(temporary, FRESH, 0o600)
        try:
            write_all(fd, data)
            os.fchmod(fd, mode)
            if outlives_machine:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        try:  # noqa: SIM105  contextlib costs each rank its import
            os.unlink(temporary)
        except OSError:
            pass
        raise


def keep_name(path: str) -> None:
    """Sync the folder of ``path`` to disk, so that a crash does not bring an older file back.

    The sync costs as much as writing the file did, so use it only for what must not be undone. Raise OSError.
    """
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
