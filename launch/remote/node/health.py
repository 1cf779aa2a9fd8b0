"""Checks of what a node must have before any rank of a job starts."""

from __future__ import annotations

import os

from launch.remote.base.paths import expand_home, python_folder, which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from launch.remote.base.records import Checks

__all__ = ["lacks", "missing_modules", "modules_argv", "shared_memory"]


_SHARED_MEMORY = "/dev/shm"  # noqa: S108  the kernel's mount point; only its size is queried
_MEBIBYTE = 1 << 20
_SEEK = """\
import importlib.util, sys
missing = []
for name in sys.argv[1:]:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        missing.append(name)
print("\\nmissing:", *missing)
"""


def lacks(checks: Checks, env: Mapping[str, str]) -> list[str]:
    """Return the reasons why this node cannot run the job; ``env`` is the environment of its ranks."""
    reasons = []
    python = checks["python"]
    folder = python_folder(python)
    if folder:
        if not os.access(folder + "/bin/python", os.X_OK):
            reasons.append(f"python = {python}: there is no bin/python in that folder")
    elif checks["needs_python"] and not which(expand_home(python), env.get("PATH", os.defpath)):
        reasons.append(f"python = {python}: there is no such command")
    wanted = checks["shm_bytes"]
    if wanted:
        there = shared_memory(_SHARED_MEMORY)
        if there < wanted:
            reasons.append(f"{_SHARED_MEMORY} holds {_size(there)}, the job asks for {_size(wanted)}")
    return reasons


def shared_memory(path: str) -> int:
    """Return the total size in bytes of the file system at ``path``; 0 when the path does not exist."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def _size(count: int) -> str:
    return f"{count / _MEBIBYTE:.0f} MiB" if count >= _MEBIBYTE else f"{count} bytes"


def modules_argv(python: str, modules: list[str]) -> list[str]:
    """Return the command that finds modules without importing them: importing torch takes seconds."""
    return [python, "-c", _SEEK, *modules]


def missing_modules(python: str, status: int, said: bytes) -> str:
    """Return the reason in the output of :func:`modules_argv`'s command; "" when no module is missing."""
    lines = [line.decode("utf-8", "replace") for line in said.splitlines()]
    answer = next((line for line in reversed(lines) if line.startswith("missing:")), None)
    if status or answer is None:
        last = lines[-1] if lines else f"exit status {status}"
        return f"{python} could not be asked for modules: {last}"
    names = answer.split()[1:]
    if not names:
        return ""
    return f"{python} has no module {', '.join(names)}: install it there, or name a Python that has it"
