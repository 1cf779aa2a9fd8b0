"""Files and folders of this node: ``~``, programs on PATH, what can be written, replacement as a whole."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

__all__ = [
    "FICLONE",
    "MANIFEST_BYTES",
    "append",
    "discard",
    "expand_home",
    "file_in_memory",
    "file_system_size",
    "hold",
    "keep_name",
    "python_folder",
    "read_regular",
    "remove_unfinished",
    "replace_file",
    "shorten_file",
    "temporary_folder",
    "temporary_name",
    "unwritable",
    "which",
    "write_all",
    "write_exit",
]

FICLONE = 0x40049409
"""ioctl by which a file shares all blocks of another, where the file system can: man 2 ioctl_ficlone."""
MANIFEST_BYTES = 64 << 20
"""Size of the largest manifest of a stored folder, of some 500,000 files."""
CACHES = frozenset(
    {
        *("__pycache__", "node_modules", ".eggs", ".ipynb_checkpoints", ".mypy_cache", ".nox"),
        *(".pytest_cache", ".ruff_cache", ".tox"),
    }
)
"""Names of the folders of tools' caches."""
ENVIRONMENT = "pyvenv.cfg"
"""File that makes a folder a virtual environment."""
UNWRITABLE = "{folder} cannot be written: {why}"
_PROBE_BYTES = 64 << 10
_TEMPORARY = ".new-{}."
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a file that must not exist yet, not even as a link."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open a file that may be anything: no link's target is opened, no pipe's writer awaited."""


def expand_home(path: str) -> str:
    """Return the path with ``~`` replaced by this node's home folder."""
    return os.environ.get("HOME", "/") + path[1:] if path.startswith("~") else path


def file_system_size(path: str) -> int:
    """Return the total size in bytes of the file system at ``path``; 0 when the path does not exist."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def python_folder(python: str) -> str:
    """Return the folder of the environment that a job's ``python`` names; "" when it names a command.

    >>> python_folder("/opt/envs/torch"), python_folder("/usr/bin/python3.11"), python_folder("python3")
    ('/opt/envs/torch', '', '')
    """
    path = python.rstrip("/")
    is_command = "/" not in path or path.rpartition("/")[2].startswith(("python", "pypy"))
    return "" if is_command else expand_home(path)


def which(command: str, path: str) -> str:
    """Return the path of a command, or ""; :func:`shutil.which` would cost each rank its import."""
    folders = [""] if "/" in command else [(folder or ".") + "/" for folder in path.split(":")]
    for folder in folders:
        if os.path.isfile(folder + command) and os.access(folder + command, os.X_OK):
            return folder + command
    return ""


def temporary_folder() -> str:
    """Return the folder for temporary files."""
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  the usual default


def unwritable(*folders: str) -> list[str]:
    """Return why a job cannot write to ``folders``: a reason for each full, read-only or missing one."""
    reasons = []
    for folder in folders:
        probe = temporary_name(f"{folder}/.ranklift")
        try:
            with open(os.open(probe, _FRESH, 0o600), "wb", buffering=0) as file:
                os.unlink(probe)
                write_all(file.fileno(), bytes(_PROBE_BYTES))
        except OSError as error:
            reasons.append(UNWRITABLE.format(folder=folder, why=error.strerror))
    return reasons


def read_regular(path: str, most: int = 64 << 20) -> bytes:
    """Return the bytes of a regular file. Raise OSError, also for a link, a pipe, a folder, and more than
    ``most`` bytes: a job can put anything in the place of its records."""
    fd = os.open(path, _READ)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            raise OSError(errno.EINVAL, "is not a record's file", path)
        data = b""
        while len(data) < found.st_size:
            piece = os.read(fd, found.st_size - len(data))
            if not piece:
                break
            data += piece
        return data
    finally:
        os.close(fd)


def temporary_name(path: str) -> str:
    """Return a unique name beside ``path``; a pid is not unique among nodes that share the folder."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{_TEMPORARY.format(name)}{os.urandom(8).hex()}")


def remove_unfinished(path: str) -> None:
    """Remove what processes that were killed in :func:`replace_file` have left of a file that nobody writes
    any more. Raise OSError."""
    folder, name = os.path.split(path)
    for entry in os.listdir(folder):
        if entry.startswith(_TEMPORARY.format(name)):
            os.unlink(os.path.join(folder, entry))


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all data, in as many pieces as a pipe or a disk takes. Raise OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def append(fd: int, data: bytes) -> tuple[int, str]:
    """Append to a log; return the number of bytes that a full disk could not take, and why."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        return len(data), error.strerror or str(error)
    return 0, ""


def write_exit(fd: int, rank: int, status: int, stopped: bool) -> None:
    """Write a rank's exit status to its node's record, as one JSON line."""
    flag = "true" if stopped else "false"
    line = f'{{"rank": {rank}, "status": {status}, "stopped": {flag}, "time": {time.time():.3f}}}\n'
    append(fd, line.encode())


def file_in_memory(data: bytes) -> int:
    """Return a descriptor, at its beginning, of a file in memory that holds ``data``."""
    fd = os.memfd_create("ranklift", os.MFD_CLOEXEC)
    write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def replace_file(path: str, data: bytes, *, mode: int = 0o600, outlives_machine: bool = True) -> None:
    """Replace ``path`` by a file with ``data``, or change nothing and raise OSError.

    After a crash of the machine readers see the old or the new file: data are synced before the rename, which
    takes some milliseconds. Set ``outlives_machine`` to False for data that are void after a reboot.
    """
    temporary = temporary_name(path)
    try:
        with open(os.open(temporary, _FRESH, 0o600), "wb", buffering=0) as file:
            write_all(file.fileno(), data)
            os.fchmod(file.fileno(), mode)
            if outlives_machine:
                os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        discard(temporary)
        raise


def discard(path: str) -> None:
    """Remove a file, if it is there and can be removed."""
    try:  # noqa: SIM105  contextlib costs each rank its import
        os.unlink(path)
    except OSError:
        pass


def shorten_file(path: str, data: bytes) -> None:
    """Replace ``path`` by a file with ``data``, which is shorter: in its own blocks where the disk has no
    room for another file. Raise OSError."""
    try:
        replace_file(path, data)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "wb", buffering=0) as file:
            write_all(fd, data)
            file.truncate()
            os.fsync(fd)


def keep_name(path: str) -> None:
    """Sync the folder of ``path``, so that a crash does not bring an older file back, at the cost of a write.
    Raise OSError."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def hold(folder: str) -> int:
    """Return a descriptor that keeps a stored folder from being removed until it is closed.

    Raise FileNotFoundError where the folder, or the regular file beside it that makes it count, is not there.
    """
    manifest = folder + ".manifest"
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    try:
        fd = os.open(manifest, _READ)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise missing from error
        raise
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.path.samestat(found, os.lstat(manifest)) and os.path.isdir(folder):
                return fd
    except FileNotFoundError:  # removed while this waited for the lock
        pass
    os.close(fd)
    raise missing
