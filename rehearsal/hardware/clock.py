"""Library that shifts a node's clock, preloaded by its programs: see ``clock.c``."""

from __future__ import annotations

from pathlib import Path

from rehearsal.hardware.c_library import build_library

__all__ = ["CLOCK", "make_clock", "set_clock"]

CLOCK = "clock.so"
"""In the network's folder that every node sees at ``/run/vnet``."""

_PRELOAD, _OFFSET = "etc/ld.so.preload", "etc/rehearsal/clock"


def make_clock(library: Path) -> None:
    """Make the library, unless it is there.

    Raises :class:`~launch.errors.MissingTool` without a C compiler.
    """
    build_library("clock.c", library)


def set_clock(root: Path, seconds: int) -> None:
    """Shift a node's clock, 0 for the right time; ``root`` is the node's root folder.

    Running programs keep their time.
    """
    if not seconds:
        (root / _PRELOAD).unlink(missing_ok=True)
        return
    (root / _OFFSET).write_text(f"{seconds}\n")
    (root / _PRELOAD).write_text(f"/run/vnet/{CLOCK}\n")
