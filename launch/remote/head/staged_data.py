"""What a head takes for granted of its nodes' staged data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from launch.remote.base.files import expand_home

__all__ = ["forget_staged"]


def forget_staged(names: Iterable[str]) -> None:
    """Have the next launch ask the nodes whether they still hold the data, which an unfit one may not."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(expand_home(f"~/.ranklift/data/{name}.nodes"))
