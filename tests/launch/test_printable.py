"""Whatever nodes and ranks send: no text of theirs commands a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.printable import escaped_json, for_file, for_stream, for_terminal, without_escapes

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
PIECES = (
    *(
        b"\x1b",
        b"[",
        b"]0;",
        b"2J",
        b"6n",
        b"m",
        b"31",
        b">4;2m",
        b"?4m",
        b"\t",
        b"\n",
        b"\r",
        b"\x07",
        b"\x9b",
    ),
    *(b"\xc2", b"\x1b[m", b"\x1b[31m", b"\x1b\\", b"\xe2\x80\xae", b"P", b"text", b"\x7f", b"\x18", b"\x00"),
)
NASTY = st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join))
"""Bytes of all kinds, and what escape sequences are made of, in any order."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def commands_in(text: str) -> list[str]:
    """What a terminal would obey in the text, colours aside."""
    rest = COLOUR.sub("", text)
    obeyed = [*range(0x09), *range(0x0B, 0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F)]
    return [letter for letter in rest if ord(letter) in (*obeyed, *range(0x2066, 0x206A))]


@given(NASTY)
def test_a_terminal_gets_well_formed_colours_and_no_other_command(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for colours in (True, False):
        for lines in (True, False):
            shown = for_terminal(text, colours=colours, lines=lines)
            assert commands_in(shown) == []
            assert colours or "\x1b" not in shown
            assert lines or "\n" not in shown
            assert for_terminal(shown, colours=colours, lines=lines) == shown
            shown.encode()  # no byte of it is left that is not text


@given(NASTY)
def test_every_line_ends_without_a_colour(data: bytes) -> None:
    for line in for_terminal(data.decode("utf-8", "surrogateescape"), colours=True).split("\n"):
        colours = COLOUR.findall(line)
        assert not colours or set(colours[-1][2:-1]) <= {"0", ";"}


@given(NASTY)
def test_a_file_gets_no_escape_sequence_since_a_terminal_may_be_behind_the_pipe(data: bytes) -> None:
    written = for_file(data)
    assert b"\x1b" not in written
    assert not re.search(rb"\xc2[\x80-\x9f]", written)


@given(st.text())
def test_a_stream_of_either_kind_gets_no_command(text: str) -> None:
    assert commands_in(for_stream(text, Terminal())) == []
    assert not {"\x1b", "\x9b"} & set(for_stream(text, io.StringIO()))


@given(st.text())
def test_json_stays_the_same_value_and_carries_no_command(text: str) -> None:
    written = escaped_json(json.dumps(text, ensure_ascii=False))
    assert commands_in(written) == []
    assert json.loads(written) == text


def test_what_a_file_gets_is_otherwise_byte_for_byte() -> None:
    data = b"\xff\x00\x08\r\x7f\xc3\xa9\x9b"
    assert for_file(data) == data


@pytest.mark.parametrize(
    ("data", "plain", "coloured"),
    [
        (b"\x1b[1;31mred\x1b[m", "red", "\x1b[1;31mred\x1b[m"),
        (b"\x1b[38;2;1;2;3mx", "x", "\x1b[38;2;1;2;3mx\x1b[0m"),
        (b"\x1b[38:5:0mx\x1b[0;0m", "x", "\x1b[38:5:0mx\x1b[0;0m"),
        (b"\x1b[>4;2mx\x1b[?4my\x1b[=1m\x1b[1$m", "xy", "xy"),
        (b"\x1b\t[2J\x1b\t[6n", "^[\t[2J^[\t[6n", "^[\t[2J^[\t[6n"),
        (b"\x1b\x1b[m[2J", "^[[2J", "^[\x1b[m[2J"),
        (b"\x1b[2J\x1b[H\x1b[?25lx\x1b[1A", "x", "x"),
        (b"\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "xy", "xy"),
        (b"\x1b]0;title\nx", "\nx", "\nx"),
        (b"\x1b(Bx\x1b7y\x1bM", "xy", "xy"),
        (b"a\xffb\x00c", "a\\xffb^@c", "a\\xffb^@c"),
        (b"a\xc2\x9b2J \x9b2J", "a\\x9b2J \\x9b2J", "a\\x9b2J \\x9b2J"),
        (b"50%\r100%\r\n", "50%\n100%\n", "50%\n100%\n"),
        ("\u202egnp.exe".encode(), "\\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_examples(data: bytes, plain: str, coloured: str) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert for_terminal(text) == plain
    assert for_terminal(text, colours=True) == coloured


UNSEEN = [
    *(
        "\u200b",
        "\u200c",
        "\u200d",
        "\u2060",
        "\ufeff",
        "\u00ad",
        "\u180e",
        "\u061c",
        "\u200f",
        "\u202e",
        "\u2066",
    ),
    *("\u2028", "\u2029", "\x85", "\x0b", "\ue000", "\U0010fffd", "\U000e0001", "\U000e0041", "\U000e007f"),
    *("\U000e0100", "\u034f", "\u115f", "\u3164", "\uffa0", "\ufff0", "\ufe00", "\ufff9", "\U0001d173"),
]


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
def test_what_nobody_would_see_is_spelt_out(letter: str) -> None:
    shown = for_terminal(f"pay{letter}pal")
    assert shown.isascii()
    assert len(shown) > len("paypal")
    written = escaped_json(json.dumps(f"pay{letter}pal", ensure_ascii=False))
    assert written.isascii()
    assert json.loads(written) == f"pay{letter}pal"


def test_of_all_letters_those_of_the_hidden_categories_are_spelt_out_and_text_is_kept() -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    kept = [letter for letter in map(chr, range(sys.maxunicode + 1)) if for_terminal(letter) == letter]
    assert {unicodedata.category(letter) for letter in kept if letter not in "\t\n"} & hidden == set()
    text = "Füße Ελληνικά עברית العربية हिन्दी ไทย 漢字 かな 한국어 \u2588░ →∑€ 👍🏽 \u2764\ufe0f e\u0301"
    assert set(text) <= set(kept)


def test_a_search_sees_the_words_without_the_colours() -> None:
    assert without_escapes(b"\x1b[1;31mlo\x1b[mss\x1b]0;t\x07") == b"loss"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "unknown")])
def test_a_terminal_without_colours_gets_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert for_stream("\x1b[31mred", Terminal()) == "red"
