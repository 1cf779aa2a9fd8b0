"""What a node does before any rank of a job starts: make the job's folder, check what the job needs."""

from __future__ import annotations

import os

from launch.remote.base.files import (
    UNWRITABLE,
    expand_home,
    file_system_size,
    hold,
    python_folder,
    replace_file,
    temporary_folder,
    unwritable,
    which,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.base.payloads import RunnerSpec
    from launch.remote.base.records import Checks

__all__ = [
    "Unfit",
    "hold_stored",
    "lacks",
    "missing_modules",
    "modules_argv",
    "not_here",
    "prepare_folder",
]

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  the kernel's mount point; only its size is queried
_ENVIRONMENTS = "~/.ranklift/environments/"
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


class Unfit(Exception):
    """This node cannot run the job's ranks; ``reasons`` are for the job's user."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = list(reasons)
        super().__init__("; ".join(reasons))


def prepare_folder(spec: RunnerSpec) -> str:
    """Make the job's folder, except the working folder; return the path. Raise :class:`Unfit`."""
    folder = expand_home(spec["folder"])
    try:
        os.makedirs(folder + "/logs", mode=0o700, exist_ok=True)
        _make_python(folder, spec)
        if spec["hostfile"]:
            replace_file(folder + "/hostfile", spec["hostfile"].encode(), outlives_machine=False)
    except OSError as error:
        raise Unfit(UNWRITABLE.format(folder=folder, why=error.strerror)) from error
    reasons = unwritable(folder, temporary_folder())
    if reasons:
        raise Unfit(*reasons)
    return folder


def hold_stored(spec: RunnerSpec) -> list[int]:
    """Return descriptors that keep the job's environment and data on this node until they are closed. Raise
    Unfit."""
    held = []
    name, path = spec["environment"]["id"], spec["environment"]["path"]
    try:
        if name:
            held.append(hold(expand_home(path)))
    except FileNotFoundError as error:
        raise Unfit(not_here(path, name)) from error
    for path in spec["data"]:
        try:
            held.append(hold(expand_home(path)))
            os.utime(held[-1])  # what was used least recently goes first
        except FileNotFoundError as error:
            raise Unfit(
                f"data {os.path.basename(path)} is not on this node: its local disk was emptied, its shared "
                "folder is not mounted, or somebody removed it there; launch again, which stages it again"
            ) from error
    return held


def _make_python(folder: str, spec: RunnerSpec) -> None:
    """Make a ``python`` for a node or image without one; :mod:`launch.remote.node.rank_env` puts it last on
    PATH.

    It is a script, because a link would lose a virtual environment's packages.
    """
    if python_folder(spec["python"]):
        return
    python = expand_home(spec["python"])
    if spec["environment"]["runtime"] == "bare":
        path = spec["user_env"].get("PATH", os.environ.get("PATH", os.defpath))
        python = "" if which("python", path) else which(python, path)
        python = os.path.abspath(python) if python else ""
    if python and python != "python":
        os.makedirs(folder + "/bin", mode=0o700, exist_ok=True)
        quoted = "'" + python.replace("'", "'\\''") + "'"
        script = f'#!/bin/sh\nexec {quoted} "$@"\n'.encode("utf-8", "surrogateescape")
        replace_file(folder + "/bin/python", script, mode=0o700, outlives_machine=False)


def lacks(checks: Checks, is_found: Callable[[str], bool]) -> list[str]:
    """Return the reasons why this node cannot run the job; ``is_found`` says of a command whether its ranks
    can start it."""
    reasons = []
    python = checks["python"]
    folder = python_folder(python)
    if folder:
        if not is_found(folder + "/bin/python"):
            lost = python.startswith(_ENVIRONMENTS)
            reasons.append(
                not_here(folder + "/bin/python", os.path.basename(folder))
                if lost
                else f"python = {python}: the folder has no bin/python"
            )
    elif checks["needs_python"] and not is_found(expand_home(python)):
        reasons.append(f"python = {python}: command not found")
    wanted = checks["shm_bytes"]
    if wanted:
        there = file_system_size(_SHARED_MEMORY)
        if there < wanted:
            found = f"{_SHARED_MEMORY} holds {_size(there)}, the job asks for {_size(wanted)}"
            remedy = f": lower it, e.g. --set resources.shm_size={there // _MEBIBYTE}m"
            reasons.append(found + (remedy if there >= _MEBIBYTE else ""))
    return reasons


def not_here(path: str, environment: str) -> str:
    """Return why this node cannot run a job whose environment it had, and the remedy: a launch alone would
    rely on the head's note that the node has it."""
    return (
        f"{path} is not on this node any more: `fab environment.rm {environment}` removes the environment "
        "from all nodes, and the next launch makes it again"
    )


def _size(count: int) -> str:
    return f"{count / _MEBIBYTE:.0f} MiB" if count >= _MEBIBYTE else f"{count} bytes"


def modules_argv(python: str, modules: list[str], more: str = "") -> list[str]:
    """Return the command that finds modules without importing them, as importing torch takes seconds; it runs
    ``more`` afterwards."""
    return [python, "-c", _SEEK + more, *modules]


def missing_modules(python: str, status: int, output: bytes) -> str:
    """Return the reason in the output of :func:`modules_argv`'s command; "" when no module is missing."""
    lines = [line.decode("utf-8", "replace") for line in output.splitlines()]
    answer = next((line for line in reversed(lines) if line.startswith("missing:")), None)
    if status or answer is None:
        last = lines[-1] if lines else f"exit status {status}"
        return f"{python} could not look for modules: {last}"
    names = answer.split()[1:]
    if not names:
        return ""
    remedy = (
        "name what is missing in a file and give it with --requirements FILE (environment: in a job file)"
    )
    return f"{python} has no module {', '.join(names)}: {remedy}, or name a Python that has it"
