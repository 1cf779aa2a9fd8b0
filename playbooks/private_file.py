"""Files on this machine about jobs, for their user alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["write_private"]


def write_private(path: Path, text: str) -> None:
    """Write a file that its user alone can read, also where it could be read by others before. Raise OSError.

    Half of a surrogate pair, which text of nodes may hold, is spelt out. What is no regular file, such as
    ``/dev/stdout``, keeps its mode.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="backslashreplace") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), 0o600)
            file.truncate()
        file.write(text)
