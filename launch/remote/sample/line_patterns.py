"""Numbers in ranks' lines: those of common frameworks, and those of the job's own patterns.

A pattern is searched in whole lines, the newest first, up to the first line that has it. A line ends at a
line feed or a carriage return, as progress bars write them; escape sequences of terminals do not count.

Lines that :data:`KNOWN` finds numbers in, each from its source:

* Horovod, examples/pytorch/pytorch_synthetic_benchmark.py: ``Iter #3: 544.8 img/sec per GPU``
* PyTorch examples, imagenet/main.py: ``Epoch: [0][ 10/5005]  Time ...  Loss 6.91e+00 (6.95e+00)``
* Lightning and other bars of tqdm: ``Epoch 0:  50%|#####  | 938/1875 [00:10<00:10, 90.1it/s, loss=0.31]``
* Transformers, trainer_callback.py, PrinterCallback: ``{'loss': 0.8091, 'learning_rate': 3e-4, ...}``
* Keras, utils/progbar.py: ``10/100 [==>...] - ETA: 5s - loss: 1.2``, since version 3 with a drawn bar
* DeepSpeed, utils/timer.py: ``epoch=0/micro_step=9/global_step=9, ..., CurrSamplesPerSec=111.3, ...``
* Megatron-LM, training/training.py: ``iteration  10/ 1000 | ... | lm loss: 7.399415E+00 | ...``
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import re

from launch.remote.base.rate_limit import LAST_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KNOWN", "SEARCH_S", "LineReader", "PatternSearch", "number_text"]

SEARCH_S = 0.05
"""Processor time that all patterns together may take for the lines of one sample."""
_DIGITS = r"(?:\d{1,32}(?:,\d{3}){0,8}\.?\d{0,32}|\.\d{1,32})(?:e[-+]?\d{1,8})?"
_NUMBER = rf"([-+]?{_DIGITS}|nan|[-+]?inf)(?!\w|\.\d)"
"""Every repetition has a bound, here and below: a line of 4 KiB of digits or blanks would take each pattern
more than :data:`SEARCH_S`."""
_IS = r"['\"]?\s{0,32}[:= ]\s{0,32}"
"""What stands between a name and its number."""
_COUNT = r"['\"]?[\s:=#\[(]{1,12}(\d+(?:,\d{3})*)(?!\.\d|\w)"
_ITEM = "(?:samples?|images?|imgs?|examples?|sequences?|records?)"
KNOWN = {
    "step": (
        ("epoch: [", r"epoch: \[\d+\]\[\s*(\d+)/\d+\]"),
        ("<", r"(?<!\d)(\d+)/\d+ \[[\d:]+<[\d:?]+, +[\d.?]+(?:it/s|s/it)"),
        ("/", r"^\s*(\d+)/\d+ (?:\[[=>.]|\u2501)"),
        ("step", rf"(?<![\w-])(?<!per )(?:global_?|train_?)?steps?{_COUNT}"),
        ("iter", rf"(?<![\w-])(?<!per )(?<!skipped )(?<!nan )iter(?:ation)?s?{_COUNT}"),
        ("[", r"(?<!epoch )(?<!epoch: )\[\s*(\d+)/\d+\]"),
    ),
    "loss": (("loss", rf"(?<![\w-])(?:train(?:ing)?[_ ]|lm )?loss{_IS}['\"]?{_NUMBER}"),),
    "epoch": (("epoch", r"(?<![\w-])(?<!per )epoch[\s:=#\[('\"]{1,12}(\d+(?:\.\d+)?)(?!\w)"),),
    "samples_per_s": (
        ("/s", rf"(?<![\w.]){_NUMBER}\s*{_ITEM}\s*/\s*s(?:ec)?\b"),
        ("per second", rf"(?<![\w.]){_NUMBER}\s*{_ITEM} per second\b"),
        ("per", rf"(?<!\w)(?:train_|curr)?samples_?per_?sec(?:ond)?{_IS}['\"]?{_NUMBER}"),
        ("/s", rf"\b{_ITEM}/s(?:ec)?{_IS}{_NUMBER}"),
    ),
    "checkpoint_s": (
        ("checkpoint_s", rf"(?<!\w)checkpoint_s{_IS}{_NUMBER}"),
        ("checkpoint", rf"\bcheckpoint\b.{{0,200}} (?:in|took) {_NUMBER} ?s(?:ec(?:onds)?)?\b"),
    ),
}
"""By metric, patterns with one group, each behind letters in lower case without which it cannot match."""
_VIRTUAL_ALARM = 26
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])|\x08")
_LINE_ENDS = re.compile(rb"[\r\n]")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_LONGEST_NUMBER = 32


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
        return [_plain(line) for line in whole if line]


def _plain(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return _ESCAPES.sub("", text) if "\x1b" in text or "\x08" in text else text


class _TookTooLong(Exception):
    """The patterns have used their time."""


class PatternSearch:
    """The patterns of a job; ``own`` ones, by metric, are added to the known ones or replace them.

    A pattern may take for ever (``(a+)+b``). The kernel counts the process's time meanwhile, and Python's
    matching looks for signals as it goes (cpython, Modules/_sre/sre_lib.h). A pattern during which the time
    is over is not searched any more, of which ``warn`` gets a line.
    """

    def __init__(self, own: Mapping[str, str], warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._patterns: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
        for name, given in KNOWN.items():
            if name not in own:
                self._patterns[name] = [(needle, re.compile(text, re.IGNORECASE)) for needle, text in given]
        for name, text in own.items():
            try:
                self._patterns[name] = [("", re.compile(text))]
            except (re.error, RecursionError, OverflowError) as error:
                warn(f"metric {name}: this node's Python does not take its pattern: {error}")
        self._searched: tuple[str, int] = ("", 0)
        _signal.signal(_VIRTUAL_ALARM, _raise_too_long)

    def search(self, lines: Mapping[int, list[str]]) -> dict[int, dict[str, str]]:
        """Return by rank the metrics that its ``lines`` hold, within :data:`SEARCH_S`."""
        found: dict[int, dict[str, str]] = {}
        try:
            _signal.setitimer(_signal.ITIMER_VIRTUAL, SEARCH_S)
            try:
                for rank, its in lines.items():
                    found[rank] = self._search_lines(its)
            finally:
                _signal.setitimer(_signal.ITIMER_VIRTUAL, 0)
        except _TookTooLong:
            name, place = self._searched
            if place < len(self._patterns[name]):
                del self._patterns[name][place]
            self._warn(
                f"metric {name}: its pattern took longer than {SEARCH_S:g} s for the lines of one sample, "
                "and is not searched any more: make it simpler"
            )
        return found

    def _search_lines(self, lines: list[str]) -> dict[str, str]:
        found = {}
        lowered = [line.lower() for line in lines]
        for name, patterns in self._patterns.items():
            for line, low in zip(reversed(lines), reversed(lowered)):  # noqa: B905
                value = self._search_line(name, patterns, line, low)
                if value:
                    found[name] = value
                    break
        return found

    def _search_line(
        self, name: str, patterns: list[tuple[str, re.Pattern[str]]], line: str, low: str
    ) -> str:
        for place, (needle, pattern) in enumerate(patterns):
            if needle in low:
                self._searched = name, place
                match = pattern.search(line)
                if match is not None:
                    value = number_text(match.group(1) or "")
                    if value:
                        return value
        return ""


def _raise_too_long(_number: int, _frame: object) -> None:
    raise _TookTooLong
