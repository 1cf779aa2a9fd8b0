"""The record of the copies in a job's working folder, and the removal of those that the job did not change.

The record holds the inode of each copy by path, and a time between the last copy and the first rank's start.
An entry with another inode, path or file system, or a later change, is the job's own.
"""

from __future__ import annotations

import os
import stat
import time

from launch.remote.base.files import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["copies_in", "permit", "read", "remove_copies", "remove_empty", "write"]

_CLOCK_S = 2.0
"""Seconds within which a file system's clock should advance; most take at most 4 ms."""
_NEVER = -1


def write(new: str, path: str) -> None:
    """Write the record of the finished copy ``new`` to ``path``, once its file system's clock advanced."""
    inodes, last = _inodes(new)
    until = time.monotonic() + _CLOCK_S
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"%d\0" % last)
            if os.fstat(fd).st_ctime_ns > last:
                parts = (b"%d %s\0" % (inode, os.fsencode(name)) for name, inode in inodes.items())
                write_all(fd, b"".join(parts))
                return
            if time.monotonic() > until:  # change times reveal nothing: treat everything as changed
                last = _NEVER
        finally:
            os.close(fd)
        time.sleep(0.001)


def _inodes(root: str) -> tuple[dict[str, int], int]:
    """Return the inodes of a folder and of every entry below it, by path relative to the folder; and the
    latest of their change times."""
    top = os.stat(root)
    inodes, last = {"": top.st_ino}, top.st_ctime_ns
    folders = [""]
    for folder in folders:  # grows in the loop
        with os.scandir(root + folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}"
                found = entry.stat(follow_symlinks=False)
                inodes[name], last = found.st_ino, max(last, found.st_ctime_ns)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
    return inodes, last


def read(path: str) -> tuple[int, dict[str, int]]:
    """Return when the copy was finished, in nanoseconds of its file system's clock, and inodes by path."""
    try:
        with open(path, "rb") as file:
            stamp, *parts = file.read().split(b"\0")[:-1]
        found = [part.partition(b" ") for part in parts]
        return int(stamp), {os.fsdecode(name): int(inode) for inode, _, name in found}
    except (OSError, ValueError):
        return _NEVER, {}


def copies_in(work: str, record: str) -> Callable[[str, os.stat_result], bool]:
    """Return a function that says of a file or link, by its path in the folder ``work`` and lstat result,
    whether it is a copy that the job left as it was."""
    since, inodes = read(record)
    try:
        root = os.lstat(work)
    except OSError:
        return lambda _path, _found: False
    if inodes.get("") != root.st_ino:
        return lambda _path, _found: False

    def is_copy(path: str, found: os.stat_result) -> bool:
        is_same = (found.st_dev, found.st_ino) == (root.st_dev, inodes.get(path))
        return is_same and found.st_ctime_ns <= since

    return is_copy


def remove_copies(work: str, since: int, inodes: Mapping[str, int]) -> None:
    """Remove the copies that were neither changed nor moved, and copied folders that are empty afterwards.

    Enter copied folders alone: a mounted or moved folder has another inode or file system, and a link in a
    folder's place is not a folder.
    """
    try:
        root = os.lstat(work)
    except FileNotFoundError:  # another runner of the node has removed it and let its lock go
        return
    if inodes.get("") != root.st_ino:
        return
    folders = [""]
    for folder in folders:  # grows in the loop
        try:
            with os.scandir(work + folder) as entries:
                for entry in list(entries):
                    name = f"{folder}/{entry.name}"
                    found = entry.stat(follow_symlinks=False)
                    is_copy = (found.st_dev, found.st_ino) == (root.st_dev, inodes.get(name))
                    if entry.is_dir(follow_symlinks=False):
                        if is_copy:
                            permit(entry.path, found)
                            folders.append(name)
                        elif entry.name == "__pycache__" and found.st_dev == root.st_dev:
                            _remove_bytecode(entry.path)
                    elif is_copy and found.st_ctime_ns <= since:
                        os.unlink(entry.path)
        except OSError:
            continue
    remove_empty(work + folder for folder in reversed(folders))


def permit(folder: str, found: os.stat_result) -> None:
    """Restore the owner's rights, which a job may have removed, to a folder with this lstat result. Raise
    OSError."""
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(folder, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)


def _remove_bytecode(folder: str) -> None:
    try:
        with os.scandir(folder) as entries:
            for entry in list(entries):
                if entry.name.endswith(".pyc") and entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)
    except OSError:
        return
    remove_empty([folder])


def remove_empty(folders: Iterable[str]) -> None:
    """Remove the folders that are empty."""
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            continue
