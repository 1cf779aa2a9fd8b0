"""Files that others, and whoever looks after a crash of the machine, see whole: the old or the new one."""

from __future__ import annotations

import os

__all__ = ["FRESH", "keep_name", "replace_file", "temporary_name", "write_all"]

FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""How to open what must not be there yet, be it a link that somebody left."""


def temporary_name(path: str) -> str:
    """Return a name beside ``path`` that nobody else has: process ids are alike on nodes that share it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".new-{name}.{os.urandom(8).hex()}")


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, in as many pieces as a pipe or a disk takes. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def replace_file(path: str, data: bytes, *, mode: int = 0o600, outlives_machine: bool = True) -> None:
    """Put a file with ``data`` in the place of ``path``; nothing is changed when that fails. Raises OSError.

    The data are on the disk before the file has its name: a machine that goes down leaves no empty file. That
    takes some milliseconds, which what is void after a restart of the machine need not cost.
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
    """Have the disk keep that ``path`` is what it is now: after it, a crash brings nothing older back.

    It costs as much as writing the file did, so it is for what must not be undone. Raises OSError.
    """
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
