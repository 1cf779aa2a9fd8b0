"""Sets of nodes by name and by number: read lists and ranges, print folded names.

A Uniform scale set names its VMs ``<prefix>`` + the instance id in six base-36 digits, so
``node00000a`` is instance 10. Gaps are normal: instances come and go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from launch.errors import InputError
from launch.numbers import MOST, bounded, shown, whole
from launch.remote.base.names import base36, fold, instance_id

__all__ = ["NodeSet", "base36", "fold", "parse_nodes", "parse_ranges", "ranges"]

# Patterns that only some commands need are compiled there.
_RANGE = r"(?P<low>[0-9]+)(?:-(?P<high>[0-9]+))?"
_NAMES = r"(?P<prefix>[a-z][a-z0-9-]*?)(?P<low>0[0-9a-z]{5})(?:-(?P=prefix)?(?P<high>0[0-9a-z]{5}))?"
"""A node's name, or a range of names. Azure never gives so many ids that the first digit is not 0; a name of
another form is taken as it is."""
_FOLDED = r"(?P<prefix>[a-z][a-z0-9-]*)\[(?P<inner>[0-9a-z,-]+)\]"
_NAME = r"[a-z][a-z0-9-]*"
_COMMA = r",(?![^\[]*\])"
"""A comma that is not in brackets."""
_FORMS = "write it like 0-3,7, node000001-node000003, all or any:4"

_BASE_36 = 36
_HIGHEST = _BASE_36**6 - 1
"""The last instance id that a computer name has room for."""

_MOST = 100_000
"""Maximum count of numbers in one list: more than a cluster has ranks, few enough for memory."""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """Nodes as a user chose them, whether they exist or not."""

    names: frozenset[str] = frozenset()
    ids: frozenset[int] = frozenset()
    """Instance ids."""
    count: int | None = None
    """The number of ``any:N``, which leaves open which nodes; None for every other choice."""

    @property
    def is_all(self) -> bool:
        """Whether every node is chosen."""
        return self == NodeSet()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Instance ids, of those named too; sorted."""
        named = {number for name in self.names if (number := instance_id(name)) is not None}
        return tuple(sorted(self.ids | named))


def parse_nodes(text: str, key: str = "--nodes") -> NodeSet:
    """Return the nodes that ``text`` chooses by name, by instance id, by ranges of both, or by number.

    >>> sorted(parse_nodes("node00000y-node000010").names), sorted(parse_nodes("0-2,7").ids)
    (['node00000y', 'node00000z', 'node000010'], [0, 1, 2, 7])
    >>> parse_nodes(fold(["node000000", "node000001"])) == parse_nodes("node000000,node000001")
    True
    >>> parse_nodes("any:4").count, parse_nodes("all").is_all
    (4, True)

    Raise :class:`~launch.errors.InputError` naming ``key`` for anything else.
    """
    if text.strip() == "all":
        return NodeSet()
    if text.startswith("any:"):
        number = text.removeprefix("any:")
        try:
            return NodeSet(
                count=bounded(key, number, 1, MOST, problem="has no number of nodes", remedy=_FORMS)
            )
        except InputError as error:
            raise InputError(key, f"any:{error.value}", error.problem, error.remedy) from None
    names: set[str] = set()
    numbers: list[str] = []
    named = 0
    for part in map(str.strip, re.split(_COMMA, text)):
        folded = re.fullmatch(_FOLDED, part)
        inner = [f"{folded['prefix']}{one}" for one in folded["inner"].split(",")] if folded else [part]
        for word in inner:
            if word[:1].isdigit():
                numbers.append(word)
            elif match := re.fullmatch(_NAMES, word):
                found = _range(match, _BASE_36, key, text, part)
                named += len(found)
                names.update(match["prefix"] + base36(number) for number in found[: _MOST + 1])
            elif not folded and re.fullmatch(_NAME, word) and word != "all":
                names.add(word)
            else:
                raise InputError(key, text, f"{part!r} is not a node", _FORMS)
            if named > _MOST:
                raise InputError(key, text, f"names more than {_MOST} nodes", _FORMS)
    return NodeSet(frozenset(names), frozenset(parse_ranges(",".join(numbers), key) if numbers else ()))


def parse_ranges(text: str, key: str = "--nodes") -> tuple[int, ...]:
    """Return the numbers that ``text`` lists, sorted, each once.

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
        match = re.fullmatch(_RANGE, part.strip())
        if match is None:
            raise InputError(key, text, f"{part!r} is not a range", "write it like 0-3,7")
        numbers = _range(match, 10, key, text, part)
        named += len(numbers)
        if named > _MOST:
            raise InputError(key, text, f"names more than {_MOST} numbers", "write it like 0-3,7")
        chosen.update(numbers)
    return tuple(sorted(chosen))


def _range(match: re.Match[str], base: int, key: str, text: str, part: str) -> range:
    low, high = (_number(match[end] or match["low"], base, key, text) for end in ("low", "high"))
    if high < low:
        raise InputError(key, text, f"{part!r} runs backwards", "write it like 0-3,7")
    return range(low, high + 1)


def _number(digits: str, base: int, key: str, text: str) -> int:
    number = int(digits, base) if base == _BASE_36 else whole(digits) or 0
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
