"""Files of rehearsed nodes, for processes outside of the nodes, whose jobs may have put anything there.

No link is followed: one with an absolute target would lead to a file of the operator's machine.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.remote.base.files import read_regular, replace_file

__all__ = ["read_inside", "remove_inside", "replace_inside"]

_MOST = 64 << 10
"""Bytes of the longest file that is read."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def read_inside(root: Path, path: str) -> str:
    """Return the text of the file at ``path`` below a node's root folder.

    Raise OSError, also for a link on the way, for anything but a regular file, and for more than 64 KiB.
    """
    with _place(root, path) as place:
        return read_regular(place, _MOST).decode(errors="replace")


def replace_inside(root: Path, path: str, text: str) -> None:
    """Replace what is at ``path`` below a node's root folder by a file. Raise OSError, also for a link on the
    way."""
    with _place(root, path) as place:
        replace_file(place, text.encode(), mode=0o644, outlives_machine=False)


def remove_inside(root: Path, path: str) -> None:
    """Remove a file, if it is there. Raise OSError, also for a link on the way."""
    with _place(root, path) as place, suppress(FileNotFoundError):
        Path(place).unlink()


@contextmanager
def _place(root: Path, path: str) -> Iterator[str]:
    """Yield a path of the same file whose folder no job can replace meanwhile."""
    *folders, name = path.split("/")
    if not {"", ".", ".."}.isdisjoint((*folders, name)):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    folder = os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)
