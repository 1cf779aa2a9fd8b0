"""Numbers in ranks' lines: those of common frameworks, and those of the job's own patterns.

A pattern is searched in whole lines, the newest first, up to the first line that has it. A line ends at a
line feed or a carriage return, as progress bars write them; escape sequences of terminals do not count.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import re

from launch.remote.base.rate_limit import LAST_BYTES
from launch.remote.lines.known_lines import KNOWN, read_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "MOST_FORMS",
    "SEARCH_S",
    "SHOWN",
    "LineReader",
    "PatternSearch",
    "line_form",
    "number_text",
    "plain_text",
]

SEARCH_S = 0.05
"""Processor time that the lines of one sample may take. What is left of it goes to known metrics."""
MOST_FORMS = 3
"""Forms of lines of which one is kept for each metric: who prints more has a pattern that finds too much."""
SHOWN = 400
"""Characters of such a line that are kept."""
_VIRTUAL_ALARM = 26
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])|\x08")
_LINE_ENDS = re.compile(rb"[\r\n]")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_LONGEST_NUMBER = 32
_NO_LETTERS = re.compile("[^A-Za-z]+")
_FORM = 200
"""Characters of a line by which it is compared with others."""


def number_text(text: str) -> str:
    """Return the number that a pattern's group found, as :class:`float` reads it; "" where there is none.

    What is not finite, such as the loss of a training that diverged, is ``nan``: the metric has no value.

    >>> number_text("1e-3"), number_text("1,234.5"), number_text("-inf"), number_text("1e999")
    ('1e-3', '1234.5', 'nan', 'nan')
    >>> number_text("1,2"), number_text("0x10"), number_text("1_000"), number_text("")
    ('', '', '', '')
    """
    text = text.strip()
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if len(text) > _LONGEST_NUMBER or "_" in text or not text.isascii():
        return ""
    try:
        value = float(text)
    except ValueError:
        return ""
    return text if value - value == 0 else "nan"


class LineReader:
    r"""The whole lines of one rank, from its output as it comes.

    >>> reader = LineReader()
    >>> reader.lines({1: b"loss 0.5\nlo"}), reader.lines({1: b"ss 0.4\rhalf"}), reader.lines({}, at_end=True)
    (['loss 0.5'], ['loss 0.4'], ['half'])
    """

    def __init__(self) -> None:
        self._begun: dict[int, bytes] = {}
        """By stream, the beginning of a line without its end."""
        self._cut: set[int] = set()
        """Streams in the middle of a line whose beginning is not known."""

    def lines(self, new: Mapping[int, bytes], *, at_end: bool = False) -> list[str]:
        """Return the lines that are whole with the ``new`` output of each stream, the newest last.

        Output of :data:`~launch.remote.base.rate_limit.LAST_BYTES` has lost its beginning. ``at_end`` the
        begun lines count as whole.
        """
        whole: list[bytes] = []
        for stream, data in new.items():
            begun = self._begun.pop(stream, b"")
            if len(data) >= LAST_BYTES or len(begun) >= LAST_BYTES:
                begun = b""
                self._cut.add(stream)
            *ended, rest = _LINE_ENDS.split(begun + data)
            if stream in self._cut and ended:
                del ended[0]
                self._cut.discard(stream)
            whole += ended
            if stream not in self._cut:
                self._begun[stream] = rest
        if at_end:
            whole += self._begun.values()
            self._begun = {}
        return [plain_text(line) for line in whole if line]


def plain_text(line: bytes) -> str:
    """Return a line as text, without escape sequences of terminals."""
    text = line.decode("utf-8", "replace")
    return _ESCAPES.sub("", text) if "\x1b" in text or "\x08" in text else text


def line_form(line: str) -> str:
    """Return the letters of a line: lines of one program differ in their numbers.

    >>> line_form("step 1 loss 0.5") == line_form("step 20 loss 1.25")
    True
    """
    return _NO_LETTERS.sub(" ", line[:_FORM])


class _TookTooLong(Exception):
    """The patterns have used their time."""


class PatternSearch:
    """The known metrics and the patterns of a job; ``own`` ones, by metric, are added or replace known ones.

    A pattern may take for ever (``(a+)+b``). The kernel counts the process's time meanwhile, and Python's
    matching looks for signals as it goes (cpython, Modules/_sre/sre_lib.h). A pattern during which the time
    is over is not searched any more, of which ``warn`` gets a line.
    """

    def __init__(self, own: Mapping[str, str], warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._known = {name: letters for name, letters in KNOWN.items() if name not in own}
        self._printed_own: set[int] = set()
        """Ranks that have printed a throughput of their own."""
        self._patterns: dict[str, re.Pattern[str]] = {}
        for name, text in own.items():
            try:
                self._patterns[name] = re.compile(text)
            except (re.error, RecursionError, OverflowError) as error:
                warn(f"metric {name}: this node's Python does not take its pattern: {error}")
        self._forms: dict[str, set[str]] = {}
        self._new_lines: dict[int, dict[str, str]] = {}
        self._searched = ""
        _signal.signal(_VIRTUAL_ALARM, _raise_too_long)

    def search(self, lines: Mapping[int, list[str]]) -> dict[int, dict[str, str]]:
        """Return by rank the metrics that its ``lines`` hold, within :data:`SEARCH_S`."""
        found: dict[int, dict[str, str]] = {rank: {} for rank in lines}
        try:
            _signal.setitimer(_signal.ITIMER_VIRTUAL, SEARCH_S)
            try:
                for rank, its in lines.items():
                    self._search_lines(rank, its, found[rank])
                self._searched = ""
                for rank, its in lines.items():
                    self._read_lines(rank, its, found[rank])
            finally:
                _signal.setitimer(_signal.ITIMER_VIRTUAL, 0)
        except _TookTooLong:
            if self._patterns.pop(self._searched, None) is not None:
                self._warn(
                    f"metric {self._searched}: its pattern took longer than {SEARCH_S:g} s for the lines of "
                    "one sample, and is not searched any more: make it simpler"
                )
        return found

    def take_lines(self, rank: int) -> dict[str, str]:
        """Return by metric the lines of a new form that numbers of a rank are from, since the last call."""
        return self._new_lines.pop(rank, {})

    def _note(self, rank: int, name: str, line: str) -> None:
        forms = self._forms.setdefault(name, set())
        if len(forms) < MOST_FORMS and line_form(line) not in forms:
            forms.add(line_form(line))
            self._new_lines.setdefault(rank, {})[name] = line.strip()[:SHOWN]

    def _read_lines(self, rank: int, lines: list[str], found: dict[str, str]) -> None:
        missing = dict(self._known)
        for line in reversed(lines):
            low = line.lower()
            if not any(letter in low for letters in missing.values() for letter in letters):
                continue
            for name, reading in read_line(line).items():
                value = number_text(reading.text) if name in missing else ""
                is_own = name != "samples_per_s" or reading.of == "rank"
                if not value or (not is_own and rank in self._printed_own):
                    continue
                if reading.of == "rank":
                    self._printed_own.add(rank)
                found[name] = value
                del missing[name]
                self._note(rank, name, line)

    def _search_lines(self, rank: int, lines: list[str], found: dict[str, str]) -> None:
        for name, pattern in self._patterns.items():
            self._searched = name
            for line in reversed(lines):
                match = pattern.search(line)
                value = "" if match is None else number_text(match.group(1) or "")
                if value:
                    found[name] = value
                    self._note(rank, name, line)
                    break


def _raise_too_long(_number: int, _frame: object) -> None:
    raise _TookTooLong
