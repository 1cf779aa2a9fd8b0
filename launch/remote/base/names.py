"""Names of nodes and of slot holders, shared by the head and the operator's side."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["base36", "drained_at", "fold", "instance_id", "is_removal", "runs"]

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = re.compile(r"(?P<prefix>.*?)(?P<id>[0-9a-z]{6})")
_DRAIN = re.compile(r"drained (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) by ")


def base36(number: int, width: int = 6) -> str:
    """Return the number in lower-case base 36, padded with zeros.

    >>> base36(10), base36(299)
    ('00000a', '00008b')
    """
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits.rjust(width, "0")


def instance_id(name: str) -> int | None:
    """Return the instance id at the end of a node's name; None without one.

    >>> instance_id("node00000a"), instance_id("login")
    (10, None)
    """
    match = _NAME.fullmatch(name)
    return int(match["id"], 36) if match else None


def fold(names: Iterable[str]) -> str:
    """Return the names in one short string; runs of consecutive ids become ranges.

    >>> fold(["node000000", "node000001", "node00000f", "node000002"])
    'node[000000-000002,00000f]'
    >>> fold(["node000004"]), fold(["login", "node000001", "node000000"])
    ('node000004', 'login,node[000000-000001]')
    """
    by_prefix: dict[str, set[int]] = {}
    plain: set[str] = set()
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            plain.add(name)
        else:
            by_prefix.setdefault(match["prefix"], set()).add(int(match["id"], 36))
    folded = sorted(plain)
    for prefix, ids in sorted(by_prefix.items()):
        inner = ",".join(base36(a) if a == b else f"{base36(a)}-{base36(b)}" for a, b in runs(sorted(ids)))
        folded.append(prefix + (inner if len(ids) == 1 else f"[{inner}]"))
    return ",".join(folded)


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as first and last of each unbroken run.

    >>> runs([0, 1, 2, 7])
    [[0, 2], [7, 7]]
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def is_removal(holder: str) -> bool:
    """Return whether a slot's holder is a command that removes the node; a job's id has no blank.

    >>> is_removal("`fab scale 3` of ann on desk"), is_removal("train-20260301-090507-0f3a")
    (True, False)
    """
    return " " in holder and drained_at(holder) is None


def drained_at(holder: str) -> float | None:
    """Return since when a slot's holder is the drain of its node, in Unix time, 0 for no time; None for
    other holders.

    >>> drained_at("drained 2026-03-01T09:05:07Z by ann on desk"), drained_at("`fab scale 3` of ann on desk")
    (1772355907.0, None)
    """
    import calendar  # on the head alone
    import time

    match = _DRAIN.match(holder)
    if match is None:
        return None
    try:
        return float(calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:  # a job has written it
        return 0.0
