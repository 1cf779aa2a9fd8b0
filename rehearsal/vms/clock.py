"""Library that shifts a node's clock, preloaded by its programs: see ``clock.c``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from launch.errors import MissingTool

__all__ = ["CLOCK", "make_clock", "set_clock"]

CLOCK = "clock.so"
"""In the network's folder that every node sees at ``/run/vnet``."""

_PRELOAD, _OFFSET = "etc/ld.so.preload", "etc/rehearsal/clock"


def make_clock(library: Path) -> None:
    """Make the library, unless it is there.

    Raises :class:`~launch.errors.MissingTool` without a C compiler: only this fault needs one.
    """
    if library.exists():
        return
    if shutil.which("cc") is None:
        raise MissingTool("cc", "install a C compiler, as in: apt-get install gcc libc6-dev")
    source, new = Path(__file__).with_suffix(".c"), library.with_suffix(".new")
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", str(new), str(source)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    new.replace(library)


def set_clock(root: Path, seconds: int) -> None:
    """Shift a node's clock, 0 for the right time; ``root`` is the node's root folder.

    Running programs keep their time.
    """
    if not seconds:
        (root / _PRELOAD).unlink(missing_ok=True)
        return
    (root / _OFFSET).write_text(f"{seconds}\n")
    (root / _PRELOAD).write_text(f"/run/vnet/{CLOCK}\n")
