"""Files and folders of this node: a user's ``~``, programs on PATH, what can be written, atomic replacement.

Readers of a replaced file, even after a crash of the machine, see the old or the new one.
"""

from __future__ import annotations

import os

__all__ = [
    "expand_home",
    "keep_name",
    "python_folder",
    "replace_file",
    "temporary_folder",
    "temporary_name",
    "unwritable",
    "which",
    "write_all",
]

UNWRITABLE = "{folder} cannot be written: {why}"
_PROBE_BYTES = 64 << 10
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a file that must not exist yet, not even as a link."""


def expand_home(path: str) -> str:
    """Return the path with ``~`` replaced by this node's home folder."""
    return os.environ.get("HOME", "/") + path[1:] if path.startswith("~") else path


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
            fd = os.open(probe, _FRESH, 0o600)
            try:
                if os.write(fd, bytes(_PROBE_BYTES)) < _PROBE_BYTES:
                    os.write(fd, b"-")  # raises with the reason
            finally:
                os.close(fd)
                os.unlink(probe)
        except OSError as error:
            reasons.append(UNWRITABLE.format(folder=folder, why=error.strerror))
    return reasons


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
        fd = os.open(temporary, _FRESH, 0o600)
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
