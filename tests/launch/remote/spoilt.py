"""What a job may put in the place of a file of its node."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["NO_FILES", "NO_JSON", "text"]


def text(content: bytes) -> Callable[[Path], object]:
    """Return what makes a path a file with this content."""
    return lambda path: path.write_bytes(content)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/dev/zero"),
}
NO_JSON = {"deep": text(b"[" * 200_000), "no text": text(b"\xff\xfe")}
