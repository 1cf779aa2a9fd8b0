"""Quantities in few characters: bytes, shares, times, and the course of a value."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bars", "compact", "duration", "metric", "percent"]

_THOUSAND = 1000
_TEN = 10
_IN_FULL = (1e4, 1e8)
_BARS = "▁▂▃▄▅▆▇█"
_UNITS = "kMGTPE"


def compact(count: float) -> str:
    """Return a count in decimal units, in 4 characters at most.

    >>> [compact(count) for count in (0, 999, 1000, 9_950, 123_456_789, 448e9)]
    ['0', '999', '1.0k', '10k', '123M', '448G']
    """
    if count < _THOUSAND - 0.5:
        return f"{count:.0f}"
    for unit in _UNITS:
        count /= _THOUSAND
        if count < _TEN - 0.05:
            return f"{count:.1f}{unit}"
        if count < _THOUSAND - 0.5:
            return f"{count:.0f}{unit}"
    return f"{count:.0f}{_UNITS[-1]}"


def percent(share: float) -> str:
    """Return a share of 1 in whole percent.

    >>> percent(0.854), percent(12.0)
    ('85', '1200')
    """
    return f"{100 * share:.0f}"


def duration(seconds: float) -> str:
    """Return a time in one unit, its number rounded down.

    >>> [duration(seconds) for seconds in (0.4, 119, 7199, 100_000, 1e7)]
    ['0 s', '119 s', '119 min', '27 h', '115 d']
    """
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * size:
            return f"{max(0.0, seconds) // size:.0f} {unit}"
    return f"{seconds // 86400:.0f} d"


def metric(value: float) -> str:
    """Return a metric's value in four digits; those before the point in full, in 9 characters at most.

    >>> [metric(value) for value in (184.0, 0.012345, 41031.26, -1e20, float("nan"))]
    ['184', '0.01235', '41031', '-1e+20', 'nan']
    """
    return f"{value:.0f}" if _IN_FULL[0] <= abs(value) < _IN_FULL[1] else f"{value:.4g}"


def bars(values: Sequence[float | None], most: float = 1.0) -> str:
    """Return one block a value, as high as its part of ``most``; a blank where nothing was sampled.

    >>> bars([0.0, 0.5, None, 1.0, 7.0])
    '▁▅ ██'
    """
    top = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[min(top, max(0, round(value / most * top)))] for value in values
    )
