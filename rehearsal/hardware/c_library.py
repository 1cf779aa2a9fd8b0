"""Libraries that stand for parts of a node, built from the C source beside this module."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path

from launch.errors import GiveUpError, MissingTool

__all__ = ["build_library", "library_folder"]

_SOURCES = Path(__file__).parent


def build_library(source: str, library: Path) -> None:
    """Build ``library`` from the C file called ``source``, unless it is there.

    Raises :class:`~launch.errors.MissingTool` without a C compiler, and :class:`~launch.errors.GiveUpError`
    with what it wrote when it fails.
    """
    if library.exists():
        return
    if shutil.which("cc") is None:
        raise MissingTool("cc", "install a C compiler, as in: apt-get install gcc libc6-dev")
    library.parent.mkdir(parents=True, exist_ok=True)
    new = library.with_suffix(f".{threading.get_ident()}")
    done = subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", "-o", str(new), str(_SOURCES / source)],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    if done.returncode:
        raise GiveUpError(
            f"cc cannot build {source}: {done.stderr.strip()}; install libc6-dev if a header is missing"
        )
    new.replace(library)


@cache
def library_folder() -> Path:
    """Return the folder of this machine's C library, in which programs look for libraries by default."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("libc.so."):
            return path.parent
    raise GiveUpError("the C library of this Python is linked into it; use one that loads libc.so.6")
