"""Paths on this node: a user's ``~``, programs on PATH, folders that can be written."""

from __future__ import annotations

import os

from launch.remote.base.whole_file import FRESH, temporary_name

__all__ = ["UNWRITABLE", "expand_home", "python_folder", "temporary_folder", "unwritable", "which"]

UNWRITABLE = "{folder} cannot be written: {why}"
_PROBE_BYTES = 64 << 10


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
            fd = os.open(probe, FRESH, 0o600)
            try:
                if os.write(fd, bytes(_PROBE_BYTES)) < _PROBE_BYTES:
                    os.write(fd, b"-")  # raises with the reason
            finally:
                os.close(fd)
                os.unlink(probe)
        except OSError as error:
            reasons.append(UNWRITABLE.format(folder=folder, why=error.strerror))
    return reasons
