"""The numbers in lines of common frameworks, each with the one name that it belongs to.

A line is cut at its numbers. What stands between two of them names the one on its left (``0.5 loss``,
``1000 img/sec``), the one on its right (``loss: 0.5``, ``img/sec 1000``), each of them, or none:

* A name with ``:`` or ``=`` has the number behind that.
* Commas, bars, brackets and the like end what belongs together.
* Names and numbers that take turns between two such borders are read in the order that leaves none of them
  over: ``step 1 loss 0.5 samples/s 1000`` begins with a name and ends with a number, so each name has the
  number behind it.
* Where either order leaves one over (``0.5 samples/s 1000``), none of these numbers is read.

Lines of an evaluation have no metrics. tests/launch/remote/lines/framework_lines.toml has lines that are
read, each with its source.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from launch.remote.lines.framework_forms import Reading, add_forms
from launch.remote.lines.number_names import (
    PLURAL,
    WEAK,
    Name,
    first_unit,
    is_devices,
    is_rate_on,
    is_unit,
    name_after,
    name_before,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KNOWN", "LONGEST", "read_line"]

KNOWN = {
    "step": ("step", "iter", "/", "num_updates"),
    "loss": ("loss",),
    "epoch": ("epoch", "train:"),
    "samples_per_s": ("/s", "per", " / s"),
    "checkpoint_s": ("checkpoint",),
}
"""By metric, letters in lower case; a line without any of them does not have the metric."""
LONGEST = 8192
"""Characters of a line that are read."""


_NUMBER = re.compile(
    r"(?<![\w.])([-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?(?:e[-+]?\d+)?|[-+]?\.\d+(?:e[-+]?\d+)?"
    r"|nan(?!\w|\s+iter)|[-+]?inf(?:inity)?(?!\w))",
    re.IGNORECASE,
)
_LONGEST_NUMBER = 32
_LONGEST_GAP = 128
"""Characters at each end of what stands between two numbers that are looked at."""
_GROUP = re.compile(r"[^\S\t\n]")
_HEAD_GROUP, _NEXT_GROUP = re.compile(r"\d{1,3}"), re.compile(r"\d{3}")
_BOXED = 9
"""Order of ``[10/5005]`` without a name, which counts if it is the last such of the line."""
_LARGEST_STEP = 1e15

_ATTACHED = re.compile(r"%|[^\W\d]\w*(?:/\w+)*|/(?:s|sec)(?:/\w+)?(?![\w=:])|[.:_-]?\d", re.IGNORECASE)
"""What stands at a number without a blank: its unit, or the rest of a word that is no number."""
_JOINTS = ":-,.+~'_"
"""What joins the numbers of a time, a date, a list."""
_GLUE = "-_./@:+*\\^&"
"""What makes a number part of the word in front of it: ``top-1``, ``/data/10``."""
_BREAK = re.compile(r"([^\w\s./@%#-]+|[\t\n]+|(?:^|(?<=\s))-+(?=\s|$)|\.(?=\s))")
_CELL = re.compile(r"\s*[\t|,]\s*")
_OPENING = re.compile(r"(?:[\"'~≈\s#]|(?<![\w.])[\w.]{0,40}(?:tensor|array|float\d{0,3})\()+$", re.IGNORECASE)
_BINDING = re.compile(r"[\"'\s]*(?::|=|->|=>)[\"'\s]*$")
_INNER = re.compile(r"\s*[(\[]([^()\[\]]{0,40})[)\]][\"'\s]*$")
_UNIT_IN_BRACKETS = re.compile(r"\s{0,3}[(\[]([^()\[\]]{1,40})[)\]]")
_LOGGED = re.compile(r'"key": "([^"]{1,64})", "value": $')
"""A number of MLPerf's log has the value of another key as its name."""

_EVALUATION = re.compile(
    r"(?:^\W{0,32}|\bINFO:?\s{1,4})(?:(?:val|valid|validat(?:ion|ing)|eval|evaluat(?:e|ion|ing))(?![\w/.=])|"
    r"test(?:ing)?(?:\s?[\[(|:]|\s(?:set|loss|acc|epoch|on)))"
    r"|(?:[|\]:]|\s-)\s{1,4}(?:test|testing|val|valid|validat(?:ion|ing)|eval|evaluat(?:ion|ing))"
    r"(?:\s?[\[(|:]|\son\s)"
    r"|\((?:val|test)\)\s",
    re.IGNORECASE,
)
"""The line is of an evaluation: it begins so behind the marks of a logger, or has a part that says so."""


class _Gap(NamedTuple):
    """What stands between two numbers."""

    before: Name | None = None
    """The name of the number behind it."""
    after: Name | None = None
    """The name or the unit of the number in front of it."""
    is_bound: bool = False
    """Whether the name has the number behind it for certain: ``loss: 0.5``."""
    is_boxed: bool = False
    """Whether the number behind it begins a bracket."""
    is_one: bool = False
    """Whether it is one name, which may be that of either number."""
    is_cell: bool = False
    """Whether the name has a border on each side: ``| loss |``."""
    is_joint: bool = False
    is_fraction: bool = False
    is_glued: bool = False
    is_attached: bool = False
    """Whether the number in front has its unit at it, or is the beginning of another word."""
    ends_box: bool = False
    is_rate_on: bool = False
    is_devices: bool = False


class _Item(NamedTuple):
    """A number, or the first one of a fraction."""

    text: str
    is_fraction: bool
    left: _Gap
    right: _Gap
    is_dead: bool
    """Whether it is part of something else, as of a time."""


def read_line(line: str) -> dict[str, Reading]:
    """Return the numbers of a line by metric.

    >>> {metric: reading.text for metric, reading in read_line("step 1 loss 0.5 samples/s 1000").items()}
    {'step': '1', 'loss': '0.5', 'samples_per_s': '1000'}
    >>> read_line("Iter #3: 544.8 img/sec per GPU")["samples_per_s"]
    Reading(text='544.8', of='rank')
    >>> read_line("0.5 samples/s 1000")
    {}
    """
    if len(line) > LONGEST:
        whole = line[:LONGEST].rsplit(None, 1)
        line = whole[0] if len(whole) > 1 else ""
    parts = _NUMBER.split(line)
    if len(parts) == 1 or _EVALUATION.search(line):
        return {}
    parts[0] = f"\n{parts[0]}"  # a border: no number is in front of it
    claims = list(_claims(_items(parts)))
    losses = sum(name.metric == "loss" for name, _ in claims)
    found: dict[str, Reading] = {}
    orders: dict[str, int] = {}
    for name, text in claims:
        metric, order = name.metric, name.order
        if (order == WEAK and losses != 1) or (order == PLURAL and not losses):
            continue
        if metric not in orders or order < orders[metric] or order == orders[metric] == _BOXED:
            orders[metric], found[metric] = order, Reading(text.replace(",", ""), name.of)
    add_forms(line, found)
    return found


def _items(parts: list[str]) -> list[_Item]:
    """Return the numbers of a line that is cut at them."""
    gaps = [_gap(part if len(part) <= 2 * _LONGEST_GAP else _shortened(part)) for part in parts[::2]]
    numbers = parts[1::2]
    items: list[_Item] = []
    place = 0
    while place < len(numbers):
        last = place
        while last + 1 < len(numbers) and gaps[last + 1].is_fraction:
            last += 1
        left, right, number = gaps[place], gaps[last + 1], numbers[place]
        dead = left.is_joint or right.is_joint or left.is_glued or last - place > 1
        dead = dead or len(number) > _LONGEST_NUMBER or _is_group(parts, place) or _is_group(parts, place - 1)
        items.append(_Item(number, last > place, left, right, dead))
        place = last + 1
    return items


def _shortened(gap: str) -> str:
    return f"{gap[:_LONGEST_GAP]}\n{gap[-_LONGEST_GAP:]}"


def _is_group(parts: list[str], place: int) -> bool:
    """Return whether a number and the next may be one: ``1 000``."""
    if place < 0 or 2 * place + 3 >= len(parts) or not _GROUP.fullmatch(parts[2 * place + 2]):
        return False
    one, other = parts[2 * place + 1], parts[2 * place + 3]
    return _HEAD_GROUP.fullmatch(one) is not None and _NEXT_GROUP.fullmatch(other) is not None


def _claims(items: list[_Item]) -> Iterator[tuple[Name, str]]:
    """Yield each name that has a number, with the number."""
    place = 0
    while place < len(items):
        end = place
        while end + 1 < len(items) and _is_linked(items, place, end):
            end += 1
        first = items[place]
        if not first.is_dead:
            yield from _claims_of(items[place : end + 1])
        if first.is_fraction and first.left.is_boxed and first.left.before is None and first.right.ends_box:
            yield Name("step", _BOXED), first.text
        if first.left.is_devices and place and items[place - 1].left.is_rate_on:
            yield Name("samples_per_s", of="job"), first.text
        place = end + 1


def _is_linked(items: list[_Item], start: int, end: int) -> bool:
    """Return whether one name stands between a number and the next and may be that of either."""
    one, other = items[end], items[end + 1]
    if not one.right.is_one or one.is_dead or other.is_dead:
        return False
    if one.right.is_cell:
        return (one.left.before is None or one.left.is_cell) and _ends_cell(other)
    return end == start or not one.left.is_cell


def _ends_cell(item: _Item) -> bool:
    return item.right.after is None or (item.right.is_cell and item.right.is_one)


def _claims_of(chain: list[_Item]) -> Iterator[tuple[Name, str]]:
    """Yield the names of numbers that take turns with them."""
    first, last = chain[0], chain[-1]
    start = first.left.before if not first.left.is_cell or _ends_cell(first) else None
    end = None if last.right.is_cell and last.right.is_one else last.right.after
    nearest = chain[-2].right.before if len(chain) > 1 else start
    if end and _is_throughput(end) and not (nearest and nearest.is_known):
        yield from _given(last, end)  # ``at 1000 samples/s``, ``throughput: 1000 samples/s``
        end = None
        if len(chain) == 1 and not first.left.is_bound:
            return
    elif end and end.is_unit and nearest and not nearest.metric:
        end = None  # ``took 0.25 s``
    if not (start and first.left.is_bound):
        yield from _ordered(chain, start, end)
        return
    yield from _given(first, start)
    second = first.right.before if len(chain) > 1 else None
    if second and _is_throughput(second) and not start.is_known:
        if end:  # ``throughput: 1000 samples/s 0.5 loss``
            yield from _from_left(chain, end)
    elif second:
        yield from _ordered(chain[1:], second, end)


def _ordered(chain: list[_Item], start: Name | None, end: Name | None) -> Iterator[tuple[Name, str]]:
    """Yield the names where the order of names and numbers is clear."""
    if start and end:
        if start.is_known == end.is_known:
            return
        start, end = (start, None) if start.is_known else (None, end)
    if end:
        yield from _from_left(chain, end)
    elif start:
        second = chain[0].right.before if len(chain) > 1 else None
        if start.is_speed and second and _is_throughput(second):
            return  # ``throughput 1000 samples/s 0.5``
        yield from _given(chain[0], start)
        for item in chain[1:]:
            if item.left.before:
                yield from _given(item, item.left.before)


def _from_left(chain: list[_Item], end: Name) -> Iterator[tuple[Name, str]]:
    """Yield the names that stand behind their numbers."""
    for item in chain:
        name = end if item is chain[-1] else item.right.after
        if name and (len(chain) > 1 or name.metric not in ("step", "epoch")):
            yield from _given(item, name)


def _is_throughput(name: Name) -> bool:
    return name.metric == "samples_per_s"


def _given(item: _Item, name: Name) -> Iterator[tuple[Name, str]]:
    """Yield the name with its number, where the number can be one of that metric."""
    metric, text = name.metric, item.text
    if not metric or (item.right.is_attached and item.right.after is not name):
        return
    if metric in ("step", "batch"):
        value = _whole(text)
        if value and (metric == "step" or item.is_fraction):
            yield name._replace(metric="step"), value
    elif metric == "epoch":
        if text[0] not in "-+":
            yield name, text
    elif not item.is_fraction and (name is item.right.after or not item.left.is_boxed):
        yield name, text


def _whole(text: str) -> str:
    """Return a whole number of 0 or more; "" for another.

    >>> _whole("1,250"), _whole("39.00"), _whole("2e+3"), _whole("1.5"), _whole("nan"), _whole("-1")
    ('1250', '39', '2000', '', '', '')
    """
    text = text.replace(",", "")
    if text.isdigit():
        return text
    value = float(text)
    return str(int(value)) if 0 <= value < _LARGEST_STEP and value == int(value) else ""


@lru_cache(maxsize=1024)
def _gap(text: str) -> _Gap:
    """Return what the text between two numbers says; kept, for the lines of a program are alike."""
    if text.strip() == "/":
        return _Gap(is_fraction=True)
    if len(text) == 1 and text in _JOINTS:
        return _Gap(is_joint=True)
    inner = _UNIT_IN_BRACKETS.match(text)
    if inner and first_unit(inner[1]) == inner[1]:  # ``1000 (img/s)``
        text = f" {inner[1]}|{text[inner.end() :]}"
    unit = first_unit(text) if text[:1].isalpha() else ""
    attached = unit or _matched(_ATTACHED, text)
    after = name_after(unit) if unit else None
    rest = text[len(attached) :]
    is_glued = rest[-1:] != "" and rest[-1] in _GLUE and not _BINDING.search(rest)
    ends_box = rest.lstrip()[:1] == "]"
    rest, is_boxed, is_inner = _unboxed(_OPENING.sub("", rest))
    rest, is_bound = _unbound(rest)
    if not attached and rest[:1] == "/":
        rest = f"|{rest[1:]}"
    parts = _BREAK.split(rest)
    pieces, breaks = [part.strip() for part in parts[::2]], parts[1::2]
    logged = _LOGGED.search(text)
    head = logged[1] if logged else "" if is_inner else pieces[-1]
    is_cell = len(pieces) > 2 and not (head or is_bound) and _CELL.fullmatch(breaks[-1]) is not None  # noqa: PLR2004
    if is_cell:
        head = pieces[-2]
    is_one = bool(head) and not (attached or is_bound or is_boxed or is_glued)
    is_one = is_one and (len(pieces) == 1 or (is_cell and len(pieces) == 3 and not pieces[0]))  # noqa: PLR2004
    tail = (
        head if is_one else "" if attached or (breaks and breaks[0].strip()[:1] in (":", "=")) else pieces[0]
    )
    unit = first_unit(tail)
    if unit and len(unit) < len(tail):
        after, is_one = name_after(unit), False
        head = head[len(unit) :].strip() if len(pieces) == 1 else head
    elif tail and (len(pieces) > 1 or not is_bound):
        after = name_after(tail)
    return _Gap(
        before=name_before(head) if head and not is_glued else None,
        after=after,
        is_bound=is_bound,
        is_boxed=is_boxed,
        is_one=is_one,
        is_cell=is_cell,
        is_glued=is_glued,
        is_attached=attached != "",
        ends_box=ends_box,
        is_rate_on=is_rate_on(pieces[-1]),
        is_devices=is_bound and is_devices(head),
    )


def _matched(form: re.Pattern[str], text: str) -> str:
    match = form.match(text)
    return match[0] if match else ""


def _unboxed(text: str) -> tuple[str, bool, bool]:
    """Return the text before the brackets that a number begins, whether there are some, and round ones."""
    is_boxed = is_inner = False
    while text[-1:] in ("[", "("):
        is_boxed, is_inner = True, is_inner or text[-1] == "("
        text = text[:-1].rstrip("\"' \t")
    return text, is_boxed, is_inner


def _unbound(text: str) -> tuple[str, bool]:
    """Return the text before what binds it to a number, with what is in its last brackets, and whether it is
    bound: ``loss (train)`` and True for ``loss (train): ``."""
    binding = _BINDING.search(text)
    is_bound = binding is not None
    if binding:
        text = text[: binding.start()]
        if is_unit(text.strip()):  # ``in 32.5 s: 1969.2 samples/s``
            return f"{text}|", False
    inner = _INNER.search(text)
    if inner and text[: inner.start()].rstrip()[-1:].isalnum():
        text = f"{text[: inner.start()]} {inner[1]}"
    return text, is_bound
