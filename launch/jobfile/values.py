"""What single values of a job file may be; each function gives the value or raises its error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from launch import durations, numbers
from launch.errors import InputError
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
    "written",
]

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LARGEST = 1024**5


def text(place: Place) -> str:
    """Text; numbers and ``true`` need quotes, as Azure ML has it."""
    if place.is_mapping or place.is_list:
        raise place.wrong(f"is {place.text}, but one text is due", "write it behind the colon")
    if place.is_null:
        raise place.wrong("is empty", "give it a value, or leave the key out")
    value = place.value
    if not isinstance(value, str):
        raise place.wrong("is no text", f"put it in quotes: '{place.text}'")
    return value


def written(place: Place) -> str:
    """A plain value as it is written: ``010`` and ``true`` stay what they are, ``''`` is empty."""
    if place.is_mapping or place.is_list:
        raise place.wrong(f"is {place.text}, but one value is due", "write it behind the colon")
    if place.is_null:
        raise place.wrong("is empty", "give it a value, '' for none, or leave the key out")
    _ = place.value
    return place.text


def literal(place: Place) -> str:
    """A plain value as Azure ML puts it into a command: 0.10 is 0.1, ``true`` is True."""
    if place.is_null:
        raise place.wrong("is empty", "give it a value, or leave the key out")
    value = place.value
    if not isinstance(value, (str, bool, int, float)):
        raise place.wrong("is neither text, a number nor true or false", f"put it in quotes: '{place.text}'")
    return str(value)


def whole(place: Place, remedy: str, low: int = 1, high: int = numbers.MOST) -> int:
    """A whole number from ``low`` to ``high``; one in quotes will do, as Azure ML has it."""
    value = place.value
    if isinstance(value, (str, int)):
        value = numbers.whole(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise place.wrong("is empty" if place.is_null else "is no whole number", remedy)
    if value < low:
        raise place.wrong(f"must be at least {low}", remedy)
    if value > high:
        raise place.wrong(f"must be at most {high}", remedy)
    return value


def flag(place: Place) -> bool:
    """``true`` or ``false``."""
    value = place.value
    if not isinstance(value, bool):
        raise place.wrong("is neither true nor false", "write true or false")
    return value


def one_of(place: Place, words: Iterable[str]) -> str:
    """One of ``words``, in whatever case it is written."""
    known = tuple(words)
    value = text(place)
    if value.lower() not in known:
        close = nearest(value, known)
        remedy = f"did you mean {close}?" if close else f"use one of {', '.join(known)}"
        raise place.wrong(f"is none of {', '.join(known)}" if close else "is not known here", remedy)
    return value.lower()


def byte_size(place: Place) -> int:
    """A size as Docker writes it: ``2g``, ``512m``."""
    value = text(place)
    remedy = "write a number and b, k, m or g, e.g. 2g"
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([bkmg]?)b?", value.strip().lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise place.wrong("is no size", remedy)
    if size > _LARGEST:
        raise place.wrong("is more memory than any machine has", remedy)
    return size


def span(place: Place) -> float:
    """Seconds, written as a number of them or like 90s, 10m and 2h."""
    remedy = "write it like 90, 90s, 10m or 2h"
    if place.is_mapping or place.is_list or place.is_null:
        raise place.wrong("is no span of time", remedy)
    seconds = durations.seconds(place.text) or 0.0
    if seconds <= 0:
        raise place.wrong("is no span of time", remedy)
    if seconds > durations.LONGEST_S:
        raise place.wrong("is more than 365 days", remedy)
    return seconds


def local(place: Place, value: str, folder: Path, more: str = "") -> Path:
    """The path on this machine that ``value`` names, from ``folder`` on; raises where nothing is there."""
    try:
        found = folder / Path(value).expanduser()
        there = found.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such user, a NUL byte
        problem = f"is no path ({getattr(error, 'strerror', None) or str(error).lower()})"
        raise place.wrong(problem, "give a path relative to the job file") from None
    if not there:
        what = f"a path relative to the job file{more}" if more else "a folder, relative to the job file"
        raise place.wrong(f"there is no {found.absolute()}", f"give {what}")
    return found


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one is likely to mean.

    >>> nearest("comand", ["command", "compute"]), nearest("zzz", ["command"])
    ('command', None)
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), by_lower, n=1)
    return by_lower[close[0]] if close else None


def unknown(place: Place, key: str, known: Iterable[str], hint: str | None = None) -> InputError:
    """The error for a key that there is none of."""
    names = sorted(known)
    close = nearest(key, names)
    what = f"one of {', '.join(names)}" if names else "leave it out"
    remedy = hint or (f"did you mean {close}?" if close else f"use {what}" if names else what)
    return place.wrong("is no key that is known here", remedy)
