"""Notices on stderr of settings that do not carry over: each once per process, none omitted."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from launch.printable import for_stream

__all__ = ["report"]

_told: set[str] = set()


def report(notices: Iterable[str]) -> None:
    """Write the notices that this process has not written yet."""
    for notice in notices:
        if notice not in _told:
            _told.add(notice)
            sys.stderr.write(for_stream(f"notice: {notice}\n", sys.stderr))
    sys.stderr.flush()
