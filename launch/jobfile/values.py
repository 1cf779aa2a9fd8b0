"""Readers of a job file's single values; each function returns the value or raises its error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from launch import durations, numbers
from launch.access import Scope
from launch.errors import InputError
from launch.expressions import MARK, expressions, remedy_of
from launch.jobfile.yaml_source import Place

__all__ = [
    "byte_size",
    "flag",
    "literal",
    "local",
    "nearest",
    "one_of",
    "span",
    "text",
    "unknown",
    "whole",
    "without_file",
    "written",
]

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LARGEST = 1024**5


def text(place: Place, *, replaced: bool = False) -> str:
    """Return a text; numbers and ``true`` need quotes, as in Azure ML.

    One with an expression is refused, unless the caller has it ``replaced``.
    """
    if place.is_mapping or place.is_list:
        raise place.wrong(f"must be one string, not {place.text}", "write it after the colon")
    if place.is_null:
        raise place.wrong("is empty", "give it a value or remove the key")
    value = place.value
    if not isinstance(value, str):
        raise place.wrong("is not a string", f"put it in quotes: '{place.text}'")
    return value if replaced else _without_expression(place, value)


def written(place: Place, *, replaced: bool = False) -> str:
    """Return a plain value as written: ``010`` and ``true`` are unchanged, ``''`` is empty.

    One with an expression is refused, unless the caller has it ``replaced``.
    """
    if place.is_mapping or place.is_list:
        raise place.wrong(f"must be one value, not {place.text}", "write it after the colon")
    if place.is_null:
        raise place.wrong("is empty", "give it a value ('' for an empty one) or remove the key")
    _ = place.value
    return place.text if replaced else _without_expression(place, place.text)


def _without_expression(place: Place, value: str) -> str:
    if MARK not in value:
        return value
    name, found = next(iter(expressions(value)), ("", MARK))
    why = remedy_of(name) if name.startswith("secrets.") else None
    problem, remedy = why or ("is not replaced here", "write the value itself")
    raise place.wrong(problem, remedy, at=MARK if "\n" in found else found)


def literal(place: Place) -> str:
    """Return a plain value as Azure ML puts it into a command: 0.10 is 0.1, ``true`` is True."""
    if place.is_null:
        raise place.wrong("is empty", "give it a value or remove the key")
    value = place.value
    if not isinstance(value, (str, bool, int, float)):
        raise place.wrong("is not a string, a number, true or false", f"put it in quotes: '{place.text}'")
    return str(value)


def whole(remedy: str, low: int = 1, high: int = numbers.MOST) -> Callable[[Place], int]:
    """Return a reader of whole numbers from ``low`` to ``high``; quotes are allowed, as in Azure ML."""

    def read(place: Place) -> int:
        value = place.value
        if isinstance(value, (str, int)):
            value = numbers.whole(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int):
            raise place.wrong("is empty" if place.is_null else "is not a whole number", remedy)
        if value < low:
            raise place.wrong(f"must be at least {low}", remedy)
        if value > high:
            raise place.wrong(f"must be at most {high}", remedy)
        return value

    return read


def flag(place: Place) -> bool:
    """Return ``true`` or ``false``."""
    value = place.value
    if not isinstance(value, bool):
        raise place.wrong("is neither true nor false", "write true or false")
    return value


def one_of(place: Place, words: Iterable[str]) -> str:
    """Return one of ``words``, which may be written in any case, in lower case."""
    known = tuple(words)
    value = text(place)
    if value.lower() not in known:
        close = nearest(value, known)
        remedy = f"did you mean {close}?" if close else f"use one of {', '.join(known)}"
        raise place.wrong(f"is none of {', '.join(known)}" if close else "is not a known value", remedy)
    return value.lower()


def byte_size(place: Place) -> int:
    """Return the bytes of a size in Docker's form: ``2g``, ``512m``."""
    value = text(place)
    remedy = "write a number and b, k, m or g, e.g. 2g"
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([bkmg]?)b?", value.strip().lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise place.wrong("is not a size", remedy)
    if size > _LARGEST:
        raise place.wrong("is more memory than any machine has", remedy)
    return size


def span(place: Place) -> float:
    """Return the seconds of a duration, written as a number of seconds or like 90s, 10m and 2h."""
    remedy = "write it like 90, 90s, 10m or 2h"
    if place.is_mapping or place.is_list or place.is_null:
        raise place.wrong("is not a duration", remedy)
    seconds = durations.seconds(place.text) or 0.0
    if seconds <= 0:
        raise place.wrong("is not a duration", remedy)
    if seconds > durations.LONGEST_S:
        raise place.wrong("is more than 365 days", remedy)
    return seconds


def without_file(text: str) -> str:
    """Return a path of this machine without the ``file:`` that Azure ML's files may have before it. What is
    there with slashes is a path on the nodes.

    >>> without_file("file:../data"), without_file("file:///mnt/data")
    ('../data', 'file:///mnt/data')
    """
    return text if text.startswith("file:/") else text.removeprefix("file:")


def local(place: Place, value: str, scope: Scope, what: str = "a folder, relative to the job file") -> Path:
    """Return the resolved path on this machine that ``value`` names, ``what`` for errors. It must exist, and
    ``scope`` admit it."""
    try:
        found = scope.named(value)
        there = found.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such user, a NUL byte
        problem = f"is not a path ({getattr(error, 'strerror', None) or str(error).lower()})"
        raise place.wrong(problem, "give a path relative to the job file") from None
    if not there:
        raise place.wrong(f"{found.absolute()} does not exist", f"give {what}")
    return scope.admitted(f"{place.where}: {place.key}", found, is_typed=place.is_typed)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to a misspelt one; None when none is similar.

    >>> nearest("comand", ["command", "compute"]), nearest("zzz", ["command"])
    ('command', None)
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), by_lower, n=1)
    return by_lower[close[0]] if close else None


def unknown(place: Place, key: str, known: Iterable[str], hint: str | None = None) -> InputError:
    """Return the error for an unknown key."""
    names = sorted(known)
    close = nearest(key, names)
    remedy = hint or (
        f"did you mean {close}?" if close else f"known keys: {', '.join(names)}" if names else "remove it"
    )
    return place.wrong("unknown key", remedy)
