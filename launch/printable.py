"""Text that nodes and ranks chose, made safe to write: nothing in it commands a terminal."""

from __future__ import annotations

import os
import re
from typing import IO

__all__ = ["escaped_json", "for_file", "for_stream", "for_terminal", "without_escapes"]

_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
_ESCAPE_BYTES = re.compile(_SEQUENCE.encode("ascii"))
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RESET = re.compile(r"\x1b\[[0;]*m")
_MARKS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Marks that change the direction of writing, and Unicode's own line ends."""
_C1_BYTES = re.compile(rb"\xc2([\x80-\x9f])")

# One pass: what a removal joins (ESC ESC[m [2J) is not looked at again, so it cannot become a sequence.
# Surrogates are bytes of a name that are not UTF-8. Bidirectional overrides make a line read as another one.
_SPECIAL = re.compile(f"{_SEQUENCE}|[\x00-\x08\x0b-\x1f\x7f-\x9f{_MARKS}\ud800-\udfff]", re.DOTALL)

_HIDDEN_IN_JSON = re.compile(f"[\x7f-\x9f{_MARKS}\ud800-\udfff]")


def for_stream(text: str, stream: IO[str]) -> str:
    """Return ``text`` as :func:`for_terminal` or :func:`for_file` has it, whichever ``stream`` is.

    ``NO_COLOR`` in the environment takes the colours away.
    """
    if stream.isatty():
        return for_terminal(text, colours=not os.environ.get("NO_COLOR"))
    if text.isascii() and "\x1b" not in text:
        return text
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a pair of UTF-16, which no file name holds
        data = text.encode("utf-8", "backslashreplace")
    return for_file(data).decode("utf-8", "surrogateescape")


def escaped_json(text: str) -> str:
    r"""Return a JSON text in which DEL, C1, bidirectional overrides and bytes that are not text are escaped.

    >>> escaped_json('["\x9b2J", "é"]')
    '["\\u009b2J", "é"]'
    """
    return _HIDDEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def for_terminal(text: str, *, colours: bool = False, lines: bool = True) -> str:
    r"""Return ``text`` as a terminal may get it.

    Colours (``ESC [ 0-9;: m``) are kept where ``colours`` are wanted, and reset at the end of their line.
    Other escape sequences are left out; other control characters (C0, DEL, C1), bidirectional overrides and
    bytes that are not text are spelt out. Tabs are kept, and line ends unless ``lines`` is off.

    >>> for_terminal("\x1b[31mred\x07\x1b[2J\nnext\r\n", colours=True)
    '\x1b[31mred^G\x1b[0m\nnext\n'
    >>> for_terminal("\x1b\t[2J \x9b6n \u202e", lines=False)
    '^[\t[2J \\x9b6n \\u202e'
    """
    if lines and "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    elif not lines and "\n" in text:
        text = text.replace("\n", "^J")
    if _SPECIAL.search(text) is None:
        return text
    shown = _SPECIAL.sub(lambda found: _shown(found[0], colours=colours), text)
    if not colours or "\x1b" not in shown:
        return shown
    return "\n".join(_closed(line) for line in shown.split("\n"))


def for_file(data: bytes) -> bytes:
    r"""Return ``data`` as a file or a pipe gets it, which a terminal may be behind.

    Escape sequences are left out; an ESC that begins none, and C1 in UTF-8, are spelt out; all other bytes
    stay as they are.

    >>> for_file(b"\x1b[31mred\x1b[0m \x1b\t[2J \xc2\x9b6n \xff\x00")
    b'red ^[\t[2J \\x9b6n \xff\x00'
    """
    if b"\x1b" in data:
        data = without_escapes(data).replace(b"\x1b", b"^[")
    return _C1_BYTES.sub(lambda found: b"\\x%02x" % found[1][0], data)


def without_escapes(data: bytes) -> bytes:
    r"""Return a line without its escape sequences, as a search in it wants it.

    >>> without_escapes(b"\x1b[31mred\x1b[0m \x1b[2K\x1b]0;title\x07end")
    b'red end'
    """
    return _ESCAPE_BYTES.sub(b"", data) if b"\x1b" in data else data


def _shown(found: str, *, colours: bool) -> str:
    if len(found) > 1:
        return found if colours and _COLOUR.fullmatch(found) else ""
    code = ord(found)
    if code < 0x20 or code == 0x7F:  # noqa: PLR2004  (C0 and DEL)
        return f"^{chr(code ^ 64)}"
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  (a byte that "surrogateescape" carried)
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004


def _closed(line: str) -> str:
    *_, last = ("", *_COLOUR.findall(line))
    return line if not last or _RESET.fullmatch(last) else f"{line}\x1b[0m"
