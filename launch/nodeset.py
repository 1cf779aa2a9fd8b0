"""Names and numbers of nodes as sets: read ranges, print folded names.

A Uniform scale set names its VMs ``<prefix>`` + the instance id in six base-36 digits, so
``node00000a`` is instance 10. Gaps are normal: instances come and go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from launch.errors import InputError
from launch.remote.names import base36, fold

__all__ = ["base36", "fold", "parse_ranges", "ranges"]

_RANGE = re.compile(r"(?P<low>\d+)(?:-(?P<high>\d+))?")


def parse_ranges(text: str, key: str = "--nodes") -> tuple[int, ...]:
    """The instance ids that ``text`` names, sorted, each once.

    >>> parse_ranges("0-3,7")
    (0, 1, 2, 3, 7)

    Raises :class:`~launch.errors.InputError` naming ``key`` for anything else.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(key, text, f"{part!r} is no range", "write it like 0-3,7")
        low = int(match["low"])
        high = int(match["high"] or low)
        if high < low:
            raise InputError(key, text, f"{part!r} runs backwards", "write it like 0-3,7")
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as :func:`parse_ranges` reads them.

    >>> ranges([3, 0, 1, 2, 7])
    '0-3,7'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
