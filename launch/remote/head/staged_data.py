"""What a head takes for granted of its nodes' staged data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from launch.remote.base.files import expand_home
from launch.remote.base.records import DataRecord, data_entry

__all__ = ["forget_staged"]


def forget_staged(data: Iterable[DataRecord]) -> None:
    """Have the next launch ask the nodes whether they still hold the data, which an unfit one may not."""
    for one in data:
        with contextlib.suppress(OSError):  # a shared folder may be what the node lacks
            os.unlink(expand_home(data_entry(one) + ".nodes"))
