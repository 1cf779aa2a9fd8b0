"""Scratch folders of commands, below the project's ``.ranklift``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.remote.base.processes import start_time

__all__ = ["remove_abandoned", "scratch"]

_PREFIX = ".command-"


@contextmanager
def scratch(project: Path) -> Iterator[Path]:
    """Return a folder for one command's own files, removed when the command ends.

    The folder of a command that was killed is removed by the next one's :func:`remove_abandoned`.
    """
    remove_abandoned(project)
    top = project / ".ranklift"
    top.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = f"{_PREFIX}{os.getpid()}-{start_time(os.getpid()).decode()}-"
    with tempfile.TemporaryDirectory(prefix=own, dir=top) as name:
        yield Path(name)


def remove_abandoned(project: Path) -> None:
    """Remove the scratch folders of commands that ended without removing them."""
    for path in (project / ".ranklift").glob(f"{_PREFIX}*"):
        pid, started, *_ = path.name.removeprefix(_PREFIX).split("-")
        if start_time(int(pid)).decode() != started:
            shutil.rmtree(path, ignore_errors=True)
