"""Whole numbers as users write them, and numbers as they are shown: one parser for options, job files and
settings, each with its bounds.

Python's own ``int`` takes Arabic digits and ``1_000`` as well, and raises an error of its own, or takes
minutes, for thousands of digits.
"""

from __future__ import annotations

import math
import re

from launch.errors import InputError

__all__ = ["MOST", "axis_top", "bounded", "counted", "shown", "whole"]

MOST = 1_000_000
"""A bound above any count here: nodes, processes, restarts."""

_DIGITS = 18
_FARTHEST: int = 10**_DIGITS - 1
_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")
_SHOWN = 40
"""Digits of a number, or characters of anything else, that an error shows."""


def whole(value: object) -> int | None:
    """Return the whole number that a value or its text is; None for anything else.

    A text has ASCII digits, with an optional sign and surrounding spaces. A number of more than 18 digits
    becomes the lowest or highest of 18: no bound reaches that far.

    >>> whole(4), whole(" 12 "), whole("-3"), whole("1_000"), whole("٣"), whole(True), whole("9" * 5000)
    (4, 12, -3, None, None, None, 999999999999999999)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-_FARTHEST, min(value, _FARTHEST))
    if not isinstance(value, str) or _NUMBER.fullmatch(value) is None:
        return None
    written = value.strip()
    digits = written.lstrip("+-").lstrip("0") or "0"
    number = int(digits) if len(digits) <= _DIGITS else _FARTHEST
    return -number if written.startswith("-") else number


def bounded(
    key: str,
    text: str,
    low: int,
    high: int,
    *,
    problem: str = "is not a whole number",
    remedy: str,
) -> int:
    """Return the number from ``low`` to ``high`` that ``text`` is.

    >>> bounded("--tail", "1e3", 0, 10, problem="is not a number of lines", remedy="write it like 100")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: --tail = '1e3': is not a number of lines; write it like 100
    >>> bounded("--tail", "11", 0, 10, remedy="write it like 100")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: --tail = 11: must be at most 10; write it like 100

    Raise :class:`~launch.errors.InputError` naming ``key`` for anything else.
    """
    number = whole(text)
    if number is None:
        raise InputError(key, text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…", problem, remedy)
    if number < low:
        raise InputError(key, shown(text, number), f"must be at least {low}", remedy)
    if number > high:
        raise InputError(key, shown(text, number), f"must be at most {high}", remedy)
    return number


def axis_top(value: float) -> float:
    """Return the top of an axis for values up to ``value``: the least of 1, 1.2, 1.5, 2, 2.5, 4, 5 or 8 times
    a power of ten that is not below; 1 for what is not above 0, or not finite.

    >>> [axis_top(value) for value in (0.93, 1.01, 41.0, 870, 2100, 9.1e9, 0.0, math.inf)]
    [1.0, 1.2, 50.0, 1000.0, 2500.0, 10000000000.0, 1.0, 1.0]
    """
    if not 0 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 2.5, 4, 5, 8, 10, 20) if step * power >= value)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, singular or plural.

    >>> counted(1, "node"), counted(4, "node"), counted(0, "file"), counted(2, "process")
    ('1 node', '4 nodes', '0 files', '2 processes')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def shown(value: object, number: int) -> object:
    """Return what an error shows of a ``value`` that :func:`whole` reads as ``number``: the number as given,
    or the beginning of a long one.

    >>> shown(" 4 ", 4), shown("12345678901234567890123456", whole("12345678901234567890123456"))
    (4, 12345678901234567890123456)
    >>> shown("9" * 50, 999999999999999999)
    '9999999999999999999999999999999999999999… (50 digits)'
    """
    if isinstance(value, int):
        written = str(value) if abs(value) < 10**_SHOWN else f"{value:#x}"  # hex is fast at any length
    else:
        written = str(value).strip()
    digits = written.removeprefix("-").removeprefix("+").removeprefix("0x")
    if len(digits) > _SHOWN:
        front = written[: len(written) - len(digits) + _SHOWN]
        return f"{front}… ({len(digits)} digits)"
    return int(written) if abs(number) == _FARTHEST else number
