"""The reader at every border: JSON from a node, a file or a network, checked against a declared type.

Whoever can write to a node chooses what it answers, so no answer is used before it has passed :func:`read`.
Bounds are part of the type: an identifier that becomes a path has a pattern, a time is one that a calendar
has, every number is finite and every text has an end.
"""

from __future__ import annotations

import json
import re
import types
from functools import lru_cache
from typing import (  # noqa: UP035  (nodes may run Python 3.8)
    Any,
    Callable,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

TYPE_CHECKING = False

__all__ = [
    "ContentId",
    "Count",
    "ExitStatus",
    "JobId",
    "Malformed",
    "NodeName",
    "Pid",
    "Rank",
    "RankKey",
    "Ranks",
    "Seconds",
    "UnixTime",
    "parse",
    "read",
]

_T = TypeVar("_T")
_Drop = Callable[[object, "Malformed"], object]
_Read = Callable[[object, "_Drop | None"], Any]

_LONGEST = 1 << 20
"""Characters of a text whose type names no bound."""
_MOST = 4 << 20
"""Values of one JSON text, by its brackets and commas: 64 MiB of empty lists would take 1.6 GB."""
_LARGEST = (1 << 63) - 1
"""Absolute value of an integer whose type names no bound: what a file system and a C library take."""
_LARGEST_PID = 1 << 22
"""Largest kernel.pid_max (https://man7.org/linux/man-pages/man5/proc_sys_kernel.5.html). To ``kill``, -1
and 0 stand for many processes."""
_YEAR_10000 = 253402300800
"""Unix time after the last second that :class:`datetime.datetime` can hold."""
_TWO_DAYS = 2 * 86400
"""East of Greenwich the year 10000 begins earlier, by less than this."""
_FARTHEST = 1e300
_SHOWN = 60
"""Characters of a value in an error."""


class Malformed(Exception):
    """Data that does not have its declared type: ``where`` names the field, ``problem`` what is wrong."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem, self.where = problem, where

    def within(self, outer: str) -> Malformed:
        """Return the same error, seen from the field that holds the value.

        >>> str(Malformed("is 3, not a text", "[2].name").within("jobs"))
        'jobs[2].name: is 3, not a text'
        """
        dot = "." if self.where and self.where[0] != "[" else ""
        return Malformed(self.problem, f"{outer}{dot}{self.where}")


class _Bound:
    """A type of JSON with bounds."""

    expected: str

    def fits(self, value: object) -> bool:
        raise NotImplementedError

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007  (bounds are no classes)


class _Text(_Bound):
    """A text that matches a pattern as a whole."""

    def __init__(self, pattern: str, expected: str) -> None:
        self._matches, self.expected = re.compile(pattern, re.ASCII).fullmatch, expected

    def fits(self, value: object) -> bool:
        return isinstance(value, str) and self._matches(value) is not None


class _Number(_Bound):
    """A number within bounds, both included."""

    def __init__(self, least: float, most: float, expected: str, *, whole: bool = False) -> None:
        self._least, self._most, self._whole, self.expected = least, most, whole, expected

    def fits(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self._whole else (int, float)):
            return False
        return bool(self._least <= value <= self._most)  # False for NaN


# typing.Annotated, which would hold a bound beside its type, needs Python 3.9, and nodes may run 3.8.
if TYPE_CHECKING:
    JobId = str
    NodeName = str
    Pid = int
    ContentId = str
    RankKey = str
    Rank = int
    Ranks = int
    Seconds = float
    UnixTime = float
    Count = int
    ExitStatus = int
else:
    JobId = _Text(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}", "a job's id")
    NodeName = _Text(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}", "a node's name")
    Pid = _Number(1, _LARGEST_PID, "a process's id", whole=True)
    ContentId = _Text(r"[0-9a-f-]{1,64}", "the id of a content")
    RankKey = _Text(r"[0-9]{1,9}", "a rank's number as text")
    Rank = _Number(-1, 999_999_999, "a rank's number, or -1 for none", whole=True)
    Ranks = _Number(0, 1_000_000, "a number of ranks", whole=True)
    Seconds = _Number(-_YEAR_10000, _YEAR_10000, "a duration in seconds")
    UnixTime = _Number(0, _YEAR_10000 - _TWO_DAYS, "a Unix time")
    Count = _Number(0, _LARGEST, "a count", whole=True)
    ExitStatus = _Number(0, 255, "an exit status", whole=True)

_ANY_TEXT = _Text(
    f"[^\ud800-\udc7f\udd00-\udfff]{{0,{_LONGEST}}}", f"a text of at most {_LONGEST} characters"
)
"""Of halves of surrogate pairs, those that stand for a byte that is not UTF-8 are text."""
_SCALARS: dict[object, _Bound] = {
    str: _ANY_TEXT,
    int: _Number(-_LARGEST, _LARGEST, "an integer of 64 bits", whole=True),
    float: _Number(-_FARTHEST, _FARTHEST, "a finite number"),
}
_UNIONS = (Union, getattr(types, "UnionType", Union))


def parse(data: bytes | str) -> object:
    """Return the JSON value that ``data`` holds. Raise :class:`Malformed` for anything else.

    More than four million values are refused before memory is taken for them.

    NaN and Infinity, which Python writes into JSON, are left to :func:`read`: they spoil one field, not all.

    >>> parse(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    marks = (b"[", b"{", b",") if isinstance(data, bytes) else ("[", "{", ",")
    if sum(map(data.count, marks)) > _MOST:  # type: ignore[arg-type]
        raise Malformed(f"holds more than {_MOST} values")
    try:
        value: object = json.loads(data)
    except RecursionError:
        raise Malformed("is nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"is not JSON ({error!s:.80})") from None
    return value


@overload
def read(kind: type[_T], value: object, drop: _Drop | None = None) -> _T: ...


@overload
def read(kind: object, value: object, drop: _Drop | None = None) -> Any: ...


def read(kind: Any, value: object, drop: _Drop | None = None) -> Any:
    """Return ``value``, a JSON value, as a ``kind``: checked as a whole, without fields that ``kind`` lacks.

    ``kind`` is made of TypedDict, list, tuple, dict, Literal, Union, None, the types of JSON, and types of
    this module. Raise :class:`Malformed` naming the field. With ``drop``, a malformed record in a list is
    left out instead, and ``drop`` called with it and its error: one bad record hides no other.

    >>> read(list[tuple[str, int]], [["a", 1]])
    [('a', 1)]
    >>> read(list[UnixTime], [1e300])
    Traceback (most recent call last):
    launch.remote.reading.Malformed: [0]: is 1e+300, not a Unix time
    """
    return _reader(kind)(value, drop)


@lru_cache(maxsize=256)
def _reader(kind: Any) -> _Read:
    """Return the function that reads values of ``kind``; kept, since answers of large clusters are long."""
    bound = _SCALARS.get(kind, kind)
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(bound, _Bound):
        read_one = _scalar(bound)
    elif kind is bool:
        read_one = _one_of((True, False), "true or false")
    elif kind is type(None):
        read_one = _one_of((None,), "null")
    elif hasattr(kind, "__required_keys__"):
        read_one = _record(kind)
    elif origin is Literal:
        read_one = _one_of(inner, f"one of {', '.join(map(str, inner))}")
    elif origin is list:
        read_one = _list(inner[0])
    elif origin is tuple:
        read_one = _tuple(inner)
    elif origin is dict:
        read_one = _dict(*inner)
    elif origin in _UNIONS:
        read_one = _union(inner)
    else:
        raise TypeError(f"{kind!r} is not a type that JSON is read as")
    return read_one


def _wrong(value: object, expected: str) -> Malformed:
    if isinstance(value, (list, dict)):
        return Malformed(f"is {'a list' if isinstance(value, list) else 'an object'}, not {expected}")
    shown = json.dumps(value[:_SHOWN] if isinstance(value, str) else value)
    return Malformed(f"is {shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'}, not {expected}")


def _scalar(kind: _Bound) -> _Read:
    def check(value: object, _: _Drop | None) -> object:
        if not kind.fits(value):
            raise _wrong(value, kind.expected)
        return value

    return check


def _one_of(values: tuple[object, ...], expected: str) -> _Read:
    def check(value: object, _: _Drop | None) -> object:
        if not any(type(value) is type(one) and value == one for one in values):  # True == 1
            raise _wrong(value, expected)
        return value

    return check


def _record(kind: Any) -> _Read:
    hints = get_type_hints(kind)
    readers = {name: _reader(hint) for name, hint in hints.items()}
    required = kind.__required_keys__

    def check(value: object, drop: _Drop | None) -> object:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        made = {}
        for name, inner in readers.items():
            if name in value:
                try:
                    made[name] = inner(value[name], drop)
                except Malformed as error:
                    raise error.within(name) from None
            elif name in required:
                raise Malformed(f"has no {name}")
        return made

    return check


def _list(item: Any) -> _Read:
    inner = _reader(item)
    is_record = hasattr(item, "__required_keys__")

    def check(value: object, drop: _Drop | None) -> object:
        if not isinstance(value, list):
            raise _wrong(value, "a list")
        made = []
        for number, one in enumerate(value):
            try:
                made.append(inner(one, drop))
            except Malformed as error:
                outer = error.within(f"[{number}]")
                if drop is None or not is_record:
                    raise outer from None
                drop(one, outer)
        return made

    return check


def _tuple(items: tuple[Any, ...]) -> _Read:
    readers = [_reader(item) for item in items]

    def check(value: object, drop: _Drop | None) -> object:
        if not isinstance(value, (list, tuple)) or len(value) != len(readers):
            raise _wrong(value, f"a list of {len(readers)}")
        made = []
        for number, inner in enumerate(readers):
            try:
                made.append(inner(value[number], drop))
            except Malformed as error:
                raise error.within(f"[{number}]") from None
        return tuple(made)

    return check


def _dict(key: Any, item: Any) -> _Read:
    keys, inner = _reader(key), _reader(item)

    def check(value: object, drop: _Drop | None) -> object:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        made = {}
        for name, one in value.items():
            try:
                made[keys(name, drop)] = inner(one, drop)
            except Malformed as error:
                raise error.within(f"[{json.dumps(name[:_SHOWN])}]") from None
        return made

    return check


def _union(kinds: tuple[Any, ...]) -> _Read:
    """Return a reader of the first of ``kinds`` that fits; of records, of the one whose tag the value has."""
    kinds = tuple(sorted(kinds, key=lambda kind: kind is not type(None)))  # an error is that of the last
    readers = [_reader(kind) for kind in kinds]
    tags = [_tag(kind) for kind in kinds]

    def check(value: object, drop: _Drop | None) -> object:
        if isinstance(value, dict):
            for inner, tag in zip(readers, tags):  # noqa: B905  (Python 3.8)
                if tag is not None and value.get(tag[0]) in tag[1]:
                    return inner(value, drop)
        last = _wrong(value, "of any of its types")
        for inner in readers:
            try:
                return inner(value, drop)
            except Malformed as error:
                last = error
        raise last

    return check


def _tag(kind: Any) -> tuple[str, tuple[object, ...]] | None:
    """Return the tag of records of this kind: its field and its values; None without one."""
    if hasattr(kind, "__required_keys__"):
        for name, hint in get_type_hints(kind).items():
            if get_origin(hint) is Literal:
                return name, get_args(hint)
    return None
