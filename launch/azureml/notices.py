"""What does not carry over is told once, on stderr: never swallowed, never repeated."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from launch.printable import for_stream

__all__ = ["tell"]

_told: set[str] = set()


def tell(notices: Iterable[str]) -> None:
    """Writes those that this process has not told yet."""
    for notice in notices:
        if notice not in _told:
            _told.add(notice)
            sys.stderr.write(for_stream(f"notice: {notice}\n", sys.stderr))
    sys.stderr.flush()
