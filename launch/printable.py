"""Text from nodes and ranks, made safe to write: nothing in it commands a terminal."""

from __future__ import annotations

import functools
import json
import os
import re
import unicodedata
from typing import IO

__all__ = ["escaped_json", "for_file", "for_stream", "for_terminal", "takes_colours", "without_escapes"]

_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
_ESCAPE_BYTES = re.compile(_SEQUENCE.encode("ascii"))
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RESET = re.compile(r"\x1b\[[0;]*m")
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Unicode's categories of invisible characters: controls, marks that change the direction of writing or have
no width, halves of surrogate pairs, private use, and line ends that are not a line feed. The joiners of emoji
and of some scripts are among them, as a word with a joiner looks like the same word without."""
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
"""Invisible characters of other categories: fillers, tags, and variation selectors, but for the two that
choose between the text and the emoji form of a sign."""
_C1_BYTES = re.compile(rb"\xc2([\x80-\x9f])")

# One pass: what a removal joins (ESC ESC[m [2J) is not matched again, so it cannot become a sequence.
# Surrogates are bytes of a name that are not UTF-8. Beyond ASCII, a letter's category decides.
_SPECIAL = re.compile(f"{_SEQUENCE}|[^\t\n -~]", re.DOTALL)
_CONTROL = re.compile(r"[^\t\n -~]")

_BEYOND_ASCII = re.compile(r"[^\x00-~]")


def takes_colours(stream: IO[str]) -> bool:
    """Return whether the stream is a terminal that shows colours, and ``NO_COLOR`` does not forbid them."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return stream.isatty() and not is_plain


def for_stream(text: str, stream: IO[str]) -> str:
    """Return ``text`` made safe for ``stream`` by :func:`for_terminal` or :func:`for_file`.

    Colours stay where :func:`takes_colours`.
    """
    if stream.isatty():
        return for_terminal(text, colours=takes_colours(stream))
    if text.isascii() and "\x1b" not in text:
        return text
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a pair of UTF-16, which no file name holds
        data = text.encode("utf-8", "backslashreplace")
    return for_file(data).decode("utf-8", "surrogateescape")


def escaped_json(text: str) -> str:
    r"""Return a JSON text with invisible characters and bytes that are not text escaped.

    >>> escaped_json('["\x9b2J", "é", "\U000e0041"]')
    '["\\u009b2J", "é", "\\udb40\\udc41"]'
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _BEYOND_ASCII.sub(
        lambda found: json.dumps(found[0])[1:-1] if _is_hidden(found[0]) else found[0], text
    )


def for_terminal(text: str, *, colours: bool = False, lines: bool = True) -> str:
    r"""Return ``text`` made safe for a terminal.

    Colours (``ESC [ 0-9;: m``) are kept with ``colours``, and reset at the end of their line. Other escape
    sequences are left out. Bytes that are not text and invisible characters are spelt out: other control
    characters (C0, DEL, C1), marks that change the direction of writing or have no width, Unicode's line
    ends, tags, private use. Tabs are kept, and line ends unless ``lines`` is off.

    >>> for_terminal("\x1b[31mred\x07\x1b[2J\nnext\r\n", colours=True)
    '\x1b[31mred^G\x1b[0m\nnext\n'
    >>> for_terminal("\x1b\t[2J \x9b6n \u202e", lines=False)
    '^[\t[2J \\x9b6n \\u202e'
    >>> for_terminal("pay\u200bpal \U000e0041 schön 漢字")
    'pay\\u200bpal \\U000e0041 schön 漢字'
    """
    if lines and "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    elif not lines and "\n" in text:
        text = text.replace("\n", "^J")
    if _CONTROL.search(text) is None:
        return text
    shown = _SPECIAL.sub(lambda found: _shown(found[0], colours=colours), text)
    if not colours or "\x1b" not in shown:
        return shown
    return "\n".join(_closed(line) for line in shown.split("\n"))


def for_file(data: bytes) -> bytes:
    r"""Return ``data`` made safe for a file or a pipe, which may end at a terminal.

    Escape sequences are left out; an ESC that begins none, and C1 in UTF-8, are spelt out; all other bytes
    stay as they are.

    >>> for_file(b"\x1b[31mred\x1b[0m \x1b\t[2J \xc2\x9b6n \xff\x00")
    b'red ^[\t[2J \\x9b6n \xff\x00'
    """
    if b"\x1b" in data:
        data = without_escapes(data).replace(b"\x1b", b"^[")
    return _C1_BYTES.sub(lambda found: b"\\x%02x" % found[1][0], data)


def without_escapes(data: bytes) -> bytes:
    r"""Return a line without its escape sequences, for searches.

    >>> without_escapes(b"\x1b[31mred\x1b[0m \x1b[2K\x1b]0;title\x07end")
    b'red end'
    """
    return _ESCAPE_BYTES.sub(b"", data) if b"\x1b" in data else data


def _shown(found: str, *, colours: bool) -> str:
    if len(found) > 1:
        return found if colours and _COLOUR.fullmatch(found) else ""
    return _spelt(found) if _is_hidden(found) else found


@functools.lru_cache(maxsize=4096)
def _is_hidden(letter: str) -> bool:
    """Return whether the letter, or its effect, is invisible."""
    return unicodedata.category(letter) in _HIDDEN or _BLANK.match(letter) is not None


def _spelt(letter: str) -> str:
    code = ord(letter)
    if code < 0x20 or code == 0x7F:  # noqa: PLR2004  (C0 and DEL)
        return f"^{chr(code ^ 64)}"
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  (a byte that "surrogateescape" carried)
        return f"\\x{code - 0xDC00:02x}"
    if code > 0xFFFF:  # noqa: PLR2004  (what \u can hold)
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004


def _closed(line: str) -> str:
    *_, last = ("", *_COLOUR.findall(line))
    return line if not last or _RESET.fullmatch(last) else f"{line}\x1b[0m"
