"""Libraries that every program of a node loads first, in place of what this machine's kernel says."""

from __future__ import annotations

from pathlib import Path

from rehearsal.hardware.c_library import build_library
from rehearsal.node_files import read_inside, remove_inside, replace_inside

__all__ = ["CLOCK", "SYSTEM", "make_library", "preload", "set_clock"]

CLOCK, SYSTEM = "clock.so", "system.so"
"""In the network's folder that every node sees at ``/run/vnet``; their sources say what they do."""

_SHOWN = "/run/vnet"
_PRELOAD, _OFFSET = "etc/ld.so.preload", "etc/rehearsal/clock"


def make_library(folder: Path, name: str) -> None:
    """Make the library called ``name`` in the network's folder, unless it is there.

    Raises :class:`~launch.errors.MissingTool` without a C compiler.
    """
    build_library(f"{Path(name).stem}.c", folder / name)


def preload(root: Path, name: str, *, wanted: bool = True) -> None:
    """Let programs that start on a node load a library, or no longer; ``root`` is the node's root folder.

    What a job has put in the place of the list is replaced.
    """
    line = f"{_SHOWN}/{name}\n"
    try:
        lines = read_inside(root, _PRELOAD).splitlines(keepends=True)
    except OSError:
        lines = []
    lines = [other for other in lines if other != line] + ([line] if wanted else [])
    if lines:
        replace_inside(root, _PRELOAD, "".join(lines))
    else:
        remove_inside(root, _PRELOAD)


def set_clock(root: Path, seconds: int) -> None:
    """Shift a node's clock, 0 for the right time; ``root`` is the node's root folder.

    Running programs keep their time.
    """
    if seconds:
        replace_inside(root, _OFFSET, f"{seconds}\n")
    preload(root, CLOCK, wanted=bool(seconds))
    if not seconds:
        remove_inside(root, _OFFSET)
