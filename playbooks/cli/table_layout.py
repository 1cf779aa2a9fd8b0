"""Which columns of a table a terminal has room for, and its rows as paragraphs where that is too few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

__all__ = ["fitting", "paragraphs"]

_BETWEEN = 3
"""Characters between two columns; the table has one more on either side."""


def fitting(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    rank: Sequence[str],
    needed: int,
    folds: str,
    room: int,
    width: Callable[[str], int] = len,
) -> list[int]:
    """Return which columns fit ``room`` characters, by ``rank``; none if the ``needed`` first do not.

    ``folds`` is the column whose cells may be wrapped at blanks.

    >>> cells = [["train-1", "RUNNING", "2"]]
    >>> [fitting(["job", "state", "nodes"], cells, ["job", "state", "nodes"], 2, "", n) for n in (27, 26, 18)]
    [[0, 1, 2], [0, 1], []]
    """
    left = room - 2 + _BETWEEN
    kept = []
    for position, name in enumerate(one for one in rank if one in columns):
        index = columns.index(name)
        texts = [name, *(row[index] for row in cells)]
        words = [word for text in texts for word in text.split()] if name == folds else texts
        wanted = _BETWEEN + max(map(width, words))
        if wanted <= left:
            left -= wanted
            kept.append(index)
        elif position < needed:
            return []
    return sorted(kept)


def paragraphs(
    columns: Sequence[str], cells: Sequence[Sequence[str]], rank: Sequence[str], room: int
) -> Iterator[str]:
    """Yield each row as lines of ``room`` characters: the most important cell, then all others by name.

    No word is broken.
    """
    import textwrap

    for row in cells:
        by_name = dict(zip(columns, row, strict=True))
        yield by_name[rank[0]]
        others = ", ".join(f"{name} {by_name[name]}" for name in rank[1:] if by_name.get(name))
        yield from textwrap.wrap(
            others,
            room,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
