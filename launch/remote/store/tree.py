"""The tree of a push and number lists in transit: plain data and pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, List  # noqa: UP035  (nodes may run Python 3.8)

__all__ = ["Tree", "plant", "runs", "spans"]

Tree = List[Any]  # noqa: UP006  (evaluated)
"""``[name, address, [subtrees]]``, as in JSON."""


def plant(nodes: Sequence[tuple[str, str]], fanout: int) -> list[Tree]:
    """Return the nodes as at most ``fanout`` trees of nearly equal size, each with that fan-out.

    >>> plant([("a", "10.0.0.5"), ("b", "10.0.0.6"), ("c", "10.0.0.7")], 2)
    [['a', '10.0.0.5', [['b', '10.0.0.6', []]]], ['c', '10.0.0.7', []]]
    """
    trees = []
    parts = min(fanout, len(nodes))
    start = 0
    for part in range(parts):
        size = (len(nodes) - start + parts - part - 1) // (parts - part)
        mine = nodes[start : start + size]
        trees.append([mine[0][0], mine[0][1], plant(mine[1:], fanout)])
        start += size
    return trees


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return ascending numbers as first and last of each unbroken run.

    >>> runs([0, 1, 2, 7]), list(spans([[0, 2], [7, 7]]))
    ([[0, 2], [7, 7]], [0, 1, 2, 7])
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def spans(found: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the numbers that :func:`runs` was called with."""
    for first, last in found:
        yield from range(first, last + 1)
