"""Records read from JSON, checked against the dataclass that they were written from."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

__all__ = ["read_list", "read_record"]

_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}


def read_record(found: object, kind: type[Any]) -> dict[str, Any]:
    """Return a copy of the JSON object of a ``kind``, a dataclass; fields with a default may be missing.

    Fields other than str, int and float are not checked. Raises TypeError naming what is missing, unknown or
    of another type.
    """
    what = kind.__name__.lower()
    if not isinstance(found, dict):
        raise TypeError(f"{_kind_of(found)} instead of the {what}'s object")
    known = {field.name: field for field in fields(kind)}
    for name, field in known.items():
        if name not in found and field.default is MISSING:
            raise TypeError(f"the {what} has no {name}")
    for name, value in found.items():
        if name not in known:
            raise TypeError(f"the {what} has {name!r}, which is unknown")
        # Annotations are text where they are postponed, as everywhere here.
        if type(value) not in _KINDS.get(str(known[name].type), (type(value),)):
            raise TypeError(f"the {what}'s {name} is {_kind_of(value)}, not {known[name].type}")
    return dict(found)


def read_list(found: object, name: str) -> list[Any]:
    """Return the JSON value called ``name``, a list; raises TypeError for anything else.

    >>> read_list([1], "nodes")
    [1]
    """
    if not isinstance(found, list):
        raise TypeError(f"{name} is {_kind_of(found)}, not a list")
    return found


def _kind_of(value: object) -> str:
    return "null" if value is None else type(value).__name__
