"""Text that fits a terminal: tables' columns, their rows as paragraphs, names with descriptions, errors."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

__all__ = ["described", "fitting", "paragraphs", "refilled", "wrapped_lines"]

_BETWEEN = 3
"""Characters between two columns; the table has one more on either side."""
_KEPT = "\0"
"""A blank at which no line ends."""
_NARROWEST = 30
"""Characters that a description has beside its name; where there are fewer, it is below."""
_LONGEST = 20_000
"""Characters of the longest line that is wrapped: a longer one is no prose."""
_QUOTED = r"""(?<!\w)(?P<q>['"`]).{0,1000}?(?P=q)(?!\w)"""
_COMMAND = (
    r"(?<![\w./`-])(?:apt-get|az|chmod|curl|docker|fab|git|make|pip|pulumi|ranklift|ssh|sudo)(?= \S)"
    r"(?:\"[^\"]*\"|'[^']*'|.)*?(?=[;,:.)](?:\s|$)|$)"
)
"""A command without quotes around it, to the end of its clause."""
_OF_NAMES = r"[^\s/;,:()]"
_PATH = rf"(?<!\w)/[^\s;,:()]*(?:[ ](?:{_OF_NAMES}+[ ]){{0,2}}{_OF_NAMES}+/[^\s;,:()]*)*"
"""A path without quotes around it, which goes on after a blank where a slash follows some words later."""
_UNIT = re.compile(rf"(?:{_QUOTED}|{_COMMAND}|{_PATH}|\S)+")
"""Where no line may end: a word with its punctuation, a quoted value, a command, a path."""


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

    ``folds`` is the column whose cells are wrapped at blanks where they do not fit whole.

    >>> cells = [["train-1", "RUNNING", "2"]]
    >>> [fitting(["job", "state", "nodes"], cells, ["job", "state", "nodes"], 2, "", n) for n in (27, 26, 18)]
    [[0, 1, 2], [0, 1], []]
    """
    left = room - 2 + _BETWEEN
    kept = []
    for position, name in enumerate(one for one in rank if one in columns):
        index = columns.index(name)
        texts = [name, *(row[index] for row in cells)]
        wanted = _BETWEEN + max(map(width, texts))
        if name == folds and wanted > left:
            wanted = _BETWEEN + max(width(word) for text in texts for word in text.split())
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

    No word is broken, nor is a cell that fits a line.
    """
    for row in cells:
        by_name = dict(zip(columns, row, strict=True))
        yield by_name[rank[0]]
        others = [f"{name} {by_name[name]}," for name in rank[1:] if by_name.get(name)]
        whole = [one.replace(" ", _KEPT) if len(one) + 2 <= room else one for one in others]
        for line in _wrapped(" ".join(whole).rstrip(","), room, "  "):
            yield line.replace(_KEPT, " ")


def described(pairs: Sequence[tuple[str, str]], room: int, width: int = 0) -> Iterator[str]:
    """Yield each name with its description beside it, or below it where ``room`` characters are too few.

    ``width`` is that of the widest name, where other lists have to match. No word is broken.

    >>> list(described([("fab up", "builds the cluster"), ("fab down", "removes it")], 42))
    ['  fab up    builds the cluster', '  fab down  removes it']
    >>> list(described([("fab up", "builds the cluster")], 20))
    ['  fab up', '      builds the', '      cluster']
    """
    width = max(width, *(len(name) for name, _ in pairs), 0)
    is_beside = room - width - 4 >= _NARROWEST
    for name, text in pairs:
        lines = _wrapped(text, room, " " * (width + 4 if is_beside else 6))
        if is_beside and lines:
            lines[0] = f"  {name.ljust(width)}  {lines[0].lstrip()}"
            yield from lines
        else:
            yield f"  {name}"
            yield from lines


def refilled(text: str, room: int) -> str:
    """Return a text whose paragraphs of longer lines than ``room`` are filled again; no word is broken.

    A paragraph with an indented line, as of an example, stays as it is.

    >>> print(refilled("one two\\nthree\\n\\nExample:\\n    four five six", 6))
    one
    two
    three
    <BLANKLINE>
    Example:
        four five six
    """
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        is_prose = not any(line.startswith(" ") for line in lines)
        if is_prose and max(map(len, lines), default=0) > room:
            lines = _wrapped(" ".join(lines), room)
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def wrapped_lines(
    text: str,
    room: int,
    first: int = 0,
    width: Callable[[str], int] = len,
    whole: Sequence[str] = (),
) -> str:
    """Return a text whose lines that are wider than ``room`` end at blanks, and continue two characters in.

    ``first`` is how much of the first line is taken already. No word, quoted value, path or command is
    broken, even if it is wider: the terminal breaks it, and it can still be copied. Indented lines, and
    commands after ``$``, stay as they are; so does each of the ``whole`` texts, such as a folder's path.

    >>> print(wrapped_lines("name = 'two words': is not here; run `fab up --yes` or wait", 20))
    name = 'two words':
      is not here; run
      `fab up --yes` or
      wait
    """
    for one in whole:
        text = text.replace(one, one.replace(" ", _KEPT))
    lines = text.split("\n")
    starts = [first] + [0] * (len(lines) - 1)
    filled = (_filled(line, room, start, width) for line, start in zip(lines, starts, strict=True))
    return "\n".join(filled).replace(_KEPT, " ")


def _filled(line: str, room: int, start: int, width: Callable[[str], int]) -> str:
    if start + width(line) <= room or len(line) > _LONGEST or line.startswith((" ", "\t", "$ ")):
        return line
    filled, used, end = "", start, 0
    for unit in _UNIT.finditer(line):
        blanks, word = line[end : unit.start()], unit[0]
        if filled and used + width(blanks + word) > room:
            blanks, used = "\n  ", 2 - width(blanks)
        filled += blanks + word
        used += width(line[end : unit.end()])
        end = unit.end()
    return filled


def _wrapped(text: str, room: int, indent: str = "") -> list[str]:
    wrapper = textwrap.TextWrapper(room, indent, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)
