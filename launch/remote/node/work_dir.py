"""A job's working folder on a node: a copy of the pushed code, made before its ranks and cleared after them.

The copy has what was pushed and nothing else, and is read back before it is used: a job may have changed the
stored code, without a trace in its size and times.

The folder is made under another name and renamed once it is whole, under a lock: of a node's runners the
first one copies and the others wait; a copy that was killed is restarted. Every runner then holds a shared
lock on the folder as long as it lives; the last runner gets the exclusive lock and clears the folder.

The file ``copied`` identifies what the job did not change, see :mod:`launch.remote.node.copy_record`;
everything else is the job's and stays. The job's outputs are in its folder ``outputs``, where scripts written
for Azure ML write them, with what the code has there: a job may remove that folder and make it again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from launch.remote.base.files import FICLONE, UNWRITABLE
from launch.remote.node import copy_record
from launch.remote.node.prepare import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import FileIO

    from launch.remote.node.snapshot_check import Pushed

__all__ = ["NAME", "OUTPUTS", "UNFINISHED", "clear", "copies_in", "make", "make_outputs"]

NAME = "work"
"""Name of the working folder in the job's folder on a node."""
_OUTPUTS = "outputs"
OUTPUTS = f"{NAME}/{_OUTPUTS}"
"""Path of the job's outputs in its folder, where the link ``outputs`` leads to them."""
UNFINISHED = ".new"
"""What its name ends with until it is whole."""
_COPIED = "copied"
_STARTED = "exits.jsonl"
"""File that is in the job's folder once ranks were started on the node."""
_NO_FOLDER = (
    f"{_OUTPUTS} of the pushed code is a file, and ./{_OUTPUTS} is a job's output folder: rename the file, "
    "or name it in .ranklift-ignore"
)
_NO_ROOM = (
    "{folder}: no room for the job's copy of the code: {needed} bytes in {entries} files and folders are "
    "needed, {free} bytes and {inodes} files are available; remove jobs that have ended"
)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNSUPPORTED = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
"""Errors with which a file system refuses copy_file_range; sendfile still works then."""
_PIECE = 64 << 20
"""Bytes copied between two signs of life."""
_BETWEEN_S = 0.1
"""Seconds of work between two signs of life."""
_WAIT_MS = 20
"""Milliseconds between attempts to get a lock that another runner holds."""


class _Tree:
    """Entries of a snapshot that were pushed, listed before the copy starts: relative paths with their lstat
    results. Raise Unfit where one is missing or changed."""

    def __init__(self, pushed: Pushed) -> None:
        self.pushed, self.root = pushed, pushed.folder
        self.folders: list[tuple[str, os.stat_result]] = [("", os.stat(self.root))]
        self.files: list[tuple[str, os.stat_result]] = []
        self.links: list[tuple[str, os.stat_result]] = []
        for folder, _ in self.folders:  # grows in the loop
            for entry in pushed.entries(folder):
                path, found = f"{folder}/{entry.name}", entry.stat(follow_symlinks=False)
                if path not in pushed.paths:
                    continue
                is_link = stat.S_ISLNK(found.st_mode)
                pushed.check_entry(path, found, os.readlink(entry.path) if is_link else "")
                kinds = self.folders if stat.S_ISDIR(found.st_mode) else self.files
                (self.links if is_link else kinds).append((path, found))
        pushed.check_whole({path for path, _ in (*self.folders, *self.files, *self.links)})

        if f"/{_OUTPUTS}" in pushed.files:
            raise Unfit(_NO_FOLDER)

    def needed(self, block: int) -> tuple[int, int]:
        """Return the size of a copy: bytes in whole blocks, and entries."""
        blocks = sum(-(-found.st_size // block) for _, found in self.files)
        entries = len(self.files) + len(self.folders) + len(self.links)
        return (blocks + len(self.folders)) * block, entries


def make(folder: str, snapshot: str, keep_alive: Callable[[int], object]) -> int:
    """Make the working folder in the job's ``folder`` unless it exists; return a descriptor that locks it.

    The folder is a copy of ``snapshot`` with its times and modes, but writable for its owner, or empty when
    that is "". It has a folder ``outputs``, also where the snapshot has a link of that name; a link in the
    job's folder leads there. Call ``keep_alive`` every 0.1 s, with the milliseconds that it may take. Raise
    :class:`~launch.remote.node.prepare.Unfit` where the node lacks the snapshot as it was pushed, or the room
    for a copy, or ``outputs`` of the snapshot is a file, and what ``keep_alive`` raises.
    """
    work = f"{folder}/{NAME}"
    while True:
        held = _lock(work, fcntl.LOCK_SH, keep_alive)
        if held is not None:
            return held
        try:  # noqa: SIM105  contextlib costs each rank its import
            os.mkdir(work + UNFINISHED, 0o700)
        except FileExistsError:
            pass  # another runner is copying, or was killed while it copied
        making = _lock(work + UNFINISHED, fcntl.LOCK_EX, keep_alive)
        if making is None:
            continue
        try:
            if not os.path.isdir(work):
                _remove(work + UNFINISHED, is_kept=True)
                _copy(snapshot, folder, keep_alive)
            else:
                os.rmdir(work + UNFINISHED)
        finally:
            os.close(making)


def make_outputs(folder: str, names: Iterable[str]) -> None:
    """Make the working folder's folder of outputs, which a launch before this one may have removed, and those
    of the ``names`` in it. Raise :class:`~launch.remote.node.prepare.Unfit`."""
    try:
        for path in ("", *(f"/{name}" for name in names)):
            os.makedirs(f"{folder}/{OUTPUTS}{path}", 0o700, exist_ok=True)
    except OSError as error:
        raise Unfit(UNWRITABLE.format(folder=error.filename, why=error.strerror)) from error


def _lock(path: str, kind: int, keep_alive: Callable[[int], object]) -> int | None:
    """Return a descriptor with the lock on the folder; None when the folder is missing or was renamed."""
    try:
        fd = _open(path)
    except FileNotFoundError:
        return None
    is_held = False
    try:
        while not is_held and _is_still(path, fd):  # a renamed folder is locked under its new name
            is_held = _try_lock(fd, kind)
            if not is_held:
                keep_alive(_WAIT_MS)
        is_held = is_held and _is_still(path, fd)
        return fd if is_held else None
    finally:
        if not is_held:
            os.close(fd)


def _open(path: str, flags: int = 0) -> int:
    """Return a descriptor of a folder; restore the owner's rights, which a launch may have removed."""
    flags |= os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except PermissionError:
        copy_record.permit(path, os.lstat(path))
        return os.open(path, flags)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: str, fd: int) -> bool:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _copy(snapshot: str, folder: str, keep_alive: Callable[[int], object]) -> None:
    """Fill the empty new folder and rename it to its final name, or remove it and raise Unfit."""
    work = f"{folder}/{NAME}"
    new = work + UNFINISHED
    tree: _Tree | None = None
    try:
        if snapshot:
            from launch.remote.node.snapshot_check import Pushed  # loads OpenSSL; other runners wait

            tree = _Tree(Pushed(snapshot))
            _check_room(tree, folder)
            _copy_tree(tree, new, keep_alive)
        outputs, link = f"{new}/{_OUTPUTS}", f"{folder}/{_OUTPUTS}"
        if os.path.islink(outputs):
            os.unlink(outputs)
        if not os.path.isdir(outputs):
            os.mkdir(outputs, 0o700)
        if not os.path.lexists(link):
            os.symlink(OUTPUTS, link)
        for name, found in reversed(tree.folders if tree else []):
            os.utime(new + name, ns=(found.st_atime_ns, found.st_mtime_ns))
            os.chmod(new + name, stat.S_IMODE(found.st_mode) | 0o700)
        copy_record.write(new, f"{folder}/{_COPIED}")
        os.rename(new, work)
    except OSError as error:
        _remove(new)
        if error.errno in _FULL and tree is not None:
            raise _no_room(tree, folder) from error
        raise Unfit(f"{new}: the code cannot be copied: {error}") from error
    except BaseException:
        _remove(new)
        raise


def _check_room(tree: _Tree, folder: str) -> None:
    """Raise Unfit when the disk lacks room for the copy; a copy that shares blocks needs none."""
    room = os.statvfs(folder)
    needed, entries = tree.needed(room.f_frsize)
    has_inodes = not room.f_files or room.f_favail >= entries
    if (room.f_bavail * room.f_frsize < needed or not has_inodes) and not _shares_blocks(tree, folder):
        raise _no_room(tree, folder)


def _no_room(tree: _Tree, folder: str) -> Unfit:
    room = os.statvfs(folder)
    needed, entries = tree.needed(room.f_frsize)
    free = room.f_bavail * room.f_frsize
    return Unfit(
        _NO_ROOM.format(folder=folder, needed=needed, entries=entries, free=free, inodes=room.f_favail)
    )


def _shares_blocks(tree: _Tree, folder: str) -> bool:
    """Return whether copies on this file system take no room until they are changed."""
    largest = max(tree.files, key=lambda one: one[1].st_size, default=None)
    if largest is None:
        return False
    probe = f"{folder}/{NAME}{UNFINISHED}/.probe"
    try:
        with open(tree.root + largest[0], "rb", buffering=0) as source, _created(probe) as target:
            os.unlink(probe)
            fcntl.ioctl(target, FICLONE, source.fileno())
    except OSError:
        return False
    return True


def _copy_tree(tree: _Tree, new: str, keep_alive: Callable[[int], object]) -> None:
    for name, _ in tree.folders[1:]:
        os.mkdir(new + name, 0o700)
    until = time.monotonic() + _BETWEEN_S
    for name, found in tree.files:
        for _ in _copy_file(tree, name, new + name, found):
            if time.monotonic() > until:
                keep_alive(0)
                until = time.monotonic() + _BETWEEN_S
    for name, found in tree.links:
        os.symlink(os.readlink(tree.root + name), new + name)
        times = (found.st_atime_ns, found.st_mtime_ns)
        os.utime(new + name, ns=times, follow_symlinks=False)


def _copy_file(tree: _Tree, name: str, target: str, found: os.stat_result) -> Iterator[None]:
    """Copy one file in pieces, by copy_file_range first: file systems that can do so share blocks then. Raise
    Unfit where the copy is not what was pushed."""
    read = tree.pushed.open(name)
    with open(read, "rb", buffering=0), _created(target) as written:
        write = written.fileno()
        copy: Callable[[int, int, int], int] = os.copy_file_range
        left = found.st_size
        while left:
            try:
                done = copy(read, write, min(left, _PIECE))
            except OSError as error:
                if copy is _send or error.errno not in _UNSUPPORTED:
                    raise
                done = 0
            if not done and copy is _send:
                raise OSError(errno.EIO, "became shorter while it was copied", tree.root + name)
            if not done:
                copy = _send
            left -= done
            yield
        os.fchmod(write, stat.S_IMODE(found.st_mode) | stat.S_IWUSR)  # files of a snapshot are read-only
        yield from tree.pushed.check_content(name, write)
        os.utime(write, ns=(found.st_atime_ns, found.st_mtime_ns))


def _created(path: str) -> FileIO:
    """Open a file that must not exist yet."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", buffering=0)


def _send(source: int, target: int, count: int) -> int:
    return os.sendfile(target, source, None, count)  # from the current offset


def copies_in(folder: str) -> Callable[[str, os.stat_result], bool]:
    """Return a function that says of a file or link, by its path in the working folder and lstat result,
    whether it is a copy that the job left as it was. Paths begin with a slash."""
    return copy_record.copies_in(f"{folder}/{NAME}", f"{folder}/{_COPIED}")


def clear(folder: str) -> None:
    """Remove from the job's working folder what the job did not change, unless a runner still holds it.

    These stay, with the folders they are in: files and links that were written, replaced, renamed or given
    another mode or owner, and all that was made, moved or mounted there, except Python's bytecode. A working
    folder that was renamed within the job's folder, or whose owner lost the rights to it, is cleared too. If
    no rank was started, the rest is renamed, so that a later launch finds a whole copy or none.
    """
    work = f"{folder}/{NAME}"
    try:
        copy_record.permit(folder, os.lstat(folder))
        since, inodes = copy_record.read(f"{folder}/{_COPIED}")
        whole = _find(folder, inodes.get("")) or work
    except OSError:
        return
    for path, is_whole in ((whole, True), (work + UNFINISHED, False)):
        try:
            fd = _open(path, os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_whole:
                copy_record.remove_copies(path, since, inodes)
                if path == work and not os.path.exists(f"{folder}/{_STARTED}") and os.path.isdir(path):
                    os.rename(path, f"{path}.{os.urandom(4).hex()}")
            else:
                _remove(path)
        except BlockingIOError:
            return
        finally:
            os.close(fd)
    try:
        os.unlink(f"{folder}/{_COPIED}")
    except FileNotFoundError:
        return


def _find(folder: str, inode: int | None) -> str | None:
    """Return the path of the working folder, which may have been renamed, by its inode; None without one."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.inode() == inode and entry.is_dir(follow_symlinks=False):
                return entry.path
    return None


def _remove(root: str, is_kept: bool = False) -> None:
    """Remove everything below an unfinished copy, and the copy's root unless it ``is_kept``."""
    folders = [root]
    for folder in folders:  # grows in the loop
        try:
            with os.scandir(folder) as entries:
                for entry in list(entries):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        os.unlink(entry.path)
        except OSError:
            continue
    copy_record.remove_empty(reversed(folders[is_kept:]))
