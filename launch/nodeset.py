"""Sets of nodes by name and by number: read ranges, print folded names.

A Uniform scale set names its VMs ``<prefix>`` + the instance id in six base-36 digits, so
``node00000a`` is instance 10. Gaps are normal: instances come and go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from launch.errors import InputError
from launch.numbers import shown, whole
from launch.remote.base.names import base36, fold

__all__ = ["base36", "fold", "parse_ranges", "ranges"]

_RANGE = re.compile(r"(?P<low>[0-9]+)(?:-(?P<high>[0-9]+))?")

_HIGHEST = 36**6 - 1
"""The last instance id that a computer name has room for."""

_MOST = 100_000
"""Maximum count of numbers in one list: more than a cluster has ranks, few enough for memory."""


def parse_ranges(text: str, key: str = "--nodes") -> tuple[int, ...]:
    """Return the instance ids that ``text`` names, sorted, each once.

    >>> parse_ranges("0-3,7")
    (0, 1, 2, 3, 7)
    >>> parse_ranges("0-99999999999")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: --nodes = '0-99999999999': 99999999999 is above 2176782335, and no node has \
such a number; write it like 0-3,7

    Raise :class:`~launch.errors.InputError` naming ``key`` for anything else.
    """
    chosen: set[int] = set()
    named = 0
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(key, text, f"{part!r} is no range", "write it like 0-3,7")
        low = _number(key, text, match["low"])
        high = _number(key, text, match["high"] or match["low"])
        if high < low:
            raise InputError(key, text, f"{part!r} runs backwards", "write it like 0-3,7")
        named += high - low + 1
        if named > _MOST:
            raise InputError(key, text, f"names more than {_MOST} numbers", "write it like 0-3,7")
        chosen.update(range(low, high + 1))
    return tuple(sorted(chosen))


def _number(key: str, text: str, digits: str) -> int:
    number = whole(digits) or 0
    if number > _HIGHEST:
        problem = f"{shown(digits, number)} is above {_HIGHEST}, and no node has such a number"
        raise InputError(key, text, problem, "write it like 0-3,7")
    return number


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in the form that :func:`parse_ranges` reads.

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
