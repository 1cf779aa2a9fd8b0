"""What the user chose to see on the screen of ``top``, and how each key changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

__all__ = ["Keys", "Sorting", "View", "press"]

Sorting = Literal["node", "cpu", "silence", "flags"]
_SORTINGS: Sequence[Sorting] = get_args(Sorting)
_SEQUENCES = {
    **{b"[A": "up", b"OA": "up", b"[B": "down", b"OB": "down", b"[5~": "page up", b"[6~": "page down"},
    **{b"[H": "home", b"OH": "home", b"[1~": "home", b"[7~": "home"},
    **{b"[F": "end", b"OF": "end", b"[4~": "end", b"[8~": "end", b"[Z": "shift tab"},
}
"""What follows ESC, by xterm's, rxvt's and the Linux console's ways (terminfo: kcuu1, kpp, khome, kcbt)."""
_BYTES = {0x09: "tab", 0x0C: "redraw", 0x02: "page up", 0x06: "page down", 0x20: "page down"}
_SCROLLING = {"up": "up", "k": "up", "down": "down", "j": "down", "g": "home", "G": "end"}
_ESC = 0x1B
_LONGEST = 32
"""Bytes of a key's sequence after which what was read is not one."""


class Keys:
    """A decoder from the bytes of a terminal to keys: ``up``, ``page down``, ``tab``, ``escape``, letters.

    >>> keys = Keys()
    >>> keys.feed(b"q\\x1b[5"), keys.feed(b"~\\x1b[1;5Qs"), keys.feed(b"\\x1b"), keys.rest()
    (['q'], ['page up', 's'], [], ['escape'])
    """

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the keys that ``data`` completes; unknown sequences are none."""
        data, self._pending = self._pending + data, b""
        found: list[str] = []
        at = 0
        while at < len(data):
            if data[at] != _ESC:
                found.extend(_letter(data[at]))
                at += 1
                continue
            end = _end_of_sequence(data, at + 1)
            if end is None:
                if len(data) - at < _LONGEST:
                    self._pending = data[at:]
                break
            found.extend(filter(None, [_SEQUENCES.get(data[at + 1 : end], "")]))
            at = end
        return found

    def rest(self) -> list[str]:
        """Return ``escape`` where that key alone was pressed: nothing has followed it for a while."""
        pending, self._pending = self._pending, b""
        return ["escape"] if pending == b"\x1b" else []

    @property
    def is_waiting(self) -> bool:
        """Whether part of a sequence was read."""
        return bool(self._pending)


def _letter(code: int) -> list[str]:
    if code in _BYTES:
        return [_BYTES[code]]
    return [chr(code)] if 0x21 <= code < 0x7F else []  # noqa: PLR2004  (ASCII's visible letters)


def _end_of_sequence(data: bytes, at: int) -> int | None:
    """Return where the sequence whose first byte after ESC is at ``at`` ends; None where it goes on."""
    if at >= len(data):
        return None
    if data[at] == ord("O"):
        return at + 2 if at + 1 < len(data) else None
    if data[at] != ord("["):
        return at + 1
    for end in range(at + 1, len(data)):
        if 0x40 <= data[end] <= 0x7E:  # noqa: PLR2004  (ECMA-48: final bytes of a control sequence)
            return end + 1
    return None


@dataclass(frozen=True, slots=True)
class View:
    """What is shown, in which order, from which row on."""

    sorting: Sorting = "node"
    ranks: bool | None = None
    """Whether each node's ranks are shown; None: where all of them fit on the screen."""
    only_flagged: bool = False
    help: bool = False
    first: int = 0
    """The row at the top of the table."""

    def within(self, rows: int, height: int) -> View:
        """Return the view that begins no further down than the last page."""
        first = max(0, min(self.first, rows - max(1, height)))
        return self if first == self.first else replace(self, first=first)


def press(view: View, key: str, *, rows: int, height: int, with_ranks: bool) -> View:
    """Return the view after a key; the same for one that changes none.

    ``rows`` is how many rows there are, ``height`` how many of them fit, ``with_ranks`` whether those of
    ranks are shown now.

    >>> view = press(View(), "page down", rows=300, height=20, with_ranks=False)
    >>> view.first, press(view, "end", rows=300, height=20, with_ranks=False).first
    (20, 280)
    """
    if key == "?" or (view.help and key == "escape"):
        return replace(view, help=not view.help)
    if key == "s":
        following = _SORTINGS[(_SORTINGS.index(view.sorting) + 1) % len(_SORTINGS)]
        return replace(view, sorting=following, first=0)
    if key == "r":
        return replace(view, ranks=not with_ranks, first=0)
    if key == "f":
        return replace(view, only_flagged=not view.only_flagged, first=0)
    moves = {"up": -1, "down": 1, "page up": -height, "page down": height, "home": -rows, "end": rows}
    move = moves.get(_SCROLLING.get(key, key), 0)
    return replace(view, first=view.first + move).within(rows, height) if move else view
