"""Lines of text in styles, cut to a width in a terminal's cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from launch.printable import for_terminal
from playbooks.cli import output

__all__ = ["Line", "Span", "Style", "cut", "padded", "sgr_text"]

Style = Literal["", "bold", "dim", "red", "green", "yellow", "cyan", "reverse"]
Span = tuple[str, Style]
"""A text without line ends in one style."""
Line = tuple[Span, ...]
_CODES: dict[Style, str] = {
    **{"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "reverse": "7"},
}


def sgr_text(line: Sequence[Span], *, colours: bool) -> str:
    r"""Return the line as a terminal gets it: nothing in its texts is a command, tabs are blanks.

    >>> sgr_text([("4 nodes", "bold"), (" \x1b[2Jup", "")], colours=True)
    '\x1b[1m4 nodes\x1b[0m up'
    """
    shown = ((_plain(text), _CODES.get(style, "") if colours else "") for text, style in line if text)
    return "".join(f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text for text, code in shown)


def cut(line: Sequence[Span], width: int) -> Line:
    """Return what of the line fits into ``width`` cells, with an ellipsis where it is cut.

    >>> cut([("node000000", ""), (" running", "green")], 14)
    (('node000000', ''), (' ru…', 'green'))
    """
    kept: list[Span] = []
    left = width
    for number, (raw, style) in enumerate(line):
        text = _plain(raw)
        size = output.cell_width(text)
        is_last = number == len(line) - 1
        if size < left or (size == left and (is_last or not any(text for text, _ in line[number + 1 :]))):
            kept.append((text, style))
            left -= size
            continue
        kept.append((_first_cells(text, left - 1) + "…" if left > 0 else "", style))
        break
    return tuple(span for span in kept if span[0])


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return the text in exactly ``width`` cells, cut or filled with blanks, which ``right`` puts before it.

    >>> padded("85", 5, right=True), padded("node000000", 6)
    ('   85', 'node0…')
    """
    text = _plain(text)
    size = output.cell_width(text)
    if size > width:
        text = _first_cells(text, width - 1) + "…" if width > 0 else ""
        size = output.cell_width(text)
    blanks = " " * (width - size)
    return blanks + text if right else text + blanks


def _first_cells(text: str, width: int) -> str:
    if text.isascii():
        return text[: max(0, width)]
    end, used = 0, 0
    for letter in text:
        used += output.cell_width(letter)
        if used > width:
            break
        end += 1
    return text[:end]


def _plain(text: str) -> str:
    return for_terminal(text, lines=False).replace("\t", " ")
