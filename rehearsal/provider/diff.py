"""Differences between two sets of inputs, path by path, and whether each needs a new resource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from rehearsal.arm.core.records import place
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.provider.values import plain

__all__ = ["Change", "changes"]

Kind = Literal["add", "delete", "update"]
_Found = Iterator[tuple[str, Kind, Any, Any]]
"""Path, kind, old and new value of each difference."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; ``path`` as Pulumi writes it: ``sku.capacity``, ``subnets[0].name``."""

    path: str
    kind: Kind
    replace: bool


def changes(
    kind: ResourceType, before: dict[str, Any], after: dict[str, Any], ignore: Sequence[str] = ()
) -> list[Change]:
    """Return the differences, in the order of ``after``, without those under a path in ``ignore``.

    A name, the location and the immutable properties need a new resource.
    """
    fixed = (*kind.inputs, "location", *kind.immutable)
    found = []
    for path, how, old, new in _walk(plain(before), plain(after), ""):
        if any(_under(path, i) for i in ignore):
            continue
        if path == "location" and isinstance(old, str) and isinstance(new, str) and place(old) == place(new):
            continue
        # What is left out stays as it is, but a list without one of its elements is another list.
        stays = how == "delete" and not path.endswith("]")
        replace = any(_under(path, f) or _under(f, path) for f in fixed) and not stays
        replace = replace or (path == "singlePlacementGroup" and old is False and new is True)
        found.append(Change(path, how, replace))
    return found


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def _walk(before: Any, after: Any, path: str) -> _Found:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in (*after, *(n for n in before if n not in after)):
            below = f"{path}.{name}" if path else name
            yield from _pair(before.get(name), after.get(name), below)
    elif isinstance(before, list) and isinstance(after, list):
        for number, (old, new) in enumerate(zip_longest(before, after)):
            yield from _pair(old, new, f"{path}[{number}]")
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield path, "update", before, after


def _pair(before: Any, after: Any, path: str) -> _Found:
    if before is not None and after is not None:
        yield from _walk(before, after, path)
    elif before is not after:
        yield path, "add" if before is None else "delete", before, after
