"""py-spy as what is pushed to nodes, where it reads the stacks of ranks that hang.

Nodes may have no way to a package index, so this machine's own copy goes there, as a snapshot of one file.
"""

from __future__ import annotations

import functools
from importlib import metadata
from pathlib import Path

from launch.code.snapshot import Snapshot, plan_data

__all__ = ["NO_STACKS", "py_spy_path", "py_spy_snapshot"]

_NAME = "py-spy"
_ELF_64, _X86_64 = b"\x7fELF\x02", b"\x3e\x00"
_MACHINE = slice(18, 20)
NO_STACKS = (
    "this machine has no py-spy for Linux on x86-64, so that stacks are read only on nodes that have one: "
    "`pip install py-spy` there, or work from a Linux machine"
)
"""What is printed where nothing can be pushed."""


@functools.cache
def py_spy_snapshot() -> Snapshot | None:
    """Return this machine's py-spy; None where it has none that nodes can run."""
    path = _program()
    return None if path is None else plan_data(path)


def py_spy_path() -> str:
    """Return where the nodes have it, below their home folder; empty where it cannot be pushed."""
    found = py_spy_snapshot()
    return "" if found is None else f".ranklift/snapshots/{found.id}/{_NAME}"


def _program() -> Path | None:
    try:
        files = metadata.files(_NAME) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(str(file.locate())).resolve()
        if file.name == _NAME and path.is_file():
            with path.open("rb") as stream:
                start = stream.read(_MACHINE.stop)
            if start.startswith(_ELF_64) and start[_MACHINE] == _X86_64:
                return path
    return None
