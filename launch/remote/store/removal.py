"""The removal of what a node's store does not need: by whom it is used, and how it goes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
from collections.abc import Sequence

from launch.remote.base.files import read_regular
from launch.remote.base.processes import IMAGES

__all__ = ["is_unknown", "is_worked_in", "removal_argv", "remove", "remove_file", "unfinished_jobs", "unload"]

_FINAL_STATES = ("SUCCEEDED", "INCOMPLETE", "FAILED", "CANCELLED", "LOST")
_SCRIPT = r"""
find "$@" -type d -perm -500 ! -perm -200 -exec chmod u+w {} + 2>/dev/null
find "$@" -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null
exec rm -rf -- "$@"
"""
"""A Python environment's folders are read-only: thousands, which one chmod changes. An unpacked image may
have folders that its own modes protect. Modes of files stay: other snapshots and the cache of uv have the
same files."""


def removal_argv(paths: Sequence[str]) -> list[str]:
    """Return the command that removes folders."""
    return ["sh", "-c", _SCRIPT, "rm", *paths]


def remove_file(path: str) -> None:
    """Remove what bears the name of a file, if anything does: a job may have made it a folder."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            subprocess.run(removal_argv([path]), check=False, capture_output=True)
        else:
            os.unlink(path)


def remove(paths: Sequence[str]) -> None:
    """Start to remove folders."""
    _start(removal_argv(paths))


def unload(environments: Sequence[str]) -> None:
    """Have Docker remove the images that it has loaded from these environments; it keeps those in use."""
    with contextlib.suppress(FileNotFoundError):  # no Docker, no images
        _start(["docker", "image", "rm", *(f"{IMAGES}/{name}" for name in environments)])


def _start(argv: list[str]) -> None:
    subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def is_worked_in(folder: str) -> bool:
    """Return whether a process of this node has its working folder in ``folder``."""
    inside = os.path.realpath(folder)
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                if (os.readlink(f"/proc/{process}/cwd") + "/").startswith(inside + "/"):
                    return True
            except OSError:
                continue
    return False


def is_unknown(node: str) -> bool:
    """Return whether the name of a node does not resolve any more; False when the lookup fails otherwise."""
    try:
        socket.getaddrinfo(node, None)
    except socket.gaierror as error:
        return error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
    except OSError:
        return False
    return False


def unfinished_jobs(root: str) -> dict[str, str]:
    """Return the job.json texts of unfinished jobs; a snapshot whose id is in one of them is in use."""
    folder = os.path.join(root, "jobs")
    try:
        jobs = os.listdir(folder)
    except OSError:
        return {}
    return {
        job: _text(os.path.join(folder, job, "job.json"))
        for job in jobs
        if not _has_ended(_text(os.path.join(folder, job, "state.json")))
    }


def _has_ended(state: str) -> bool:
    """Return whether the text of a state.json has a final state; a torn one may be of a job that runs."""
    try:
        return json.loads(state)["state"] in _FINAL_STATES
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _text(path: str) -> str:
    try:
        return read_regular(path).decode("utf-8", "replace")
    except OSError:
        return ""
