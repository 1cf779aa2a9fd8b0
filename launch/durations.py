"""Durations as users write them, on the command line and in job files, and as they read them."""

from __future__ import annotations

import re
from datetime import timedelta

__all__ = ["LONGEST_S", "seconds", "span"]

LONGEST_S = 365 * 24 * 3600
"""Longest duration of a job, a wait or a look back; clock arithmetic overflows soon after."""

_MINUTES = 600
"""Seconds from which a duration is printed in hours, minutes and seconds."""
_SPAN = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([smh]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float | None:
    """Return a duration in seconds; None where ``text`` is not one. The caller checks for 0 and less.

    >>> seconds("90"), seconds("10m"), seconds(" 1.5 h "), seconds("-1s"), seconds("soon")
    (90.0, 600.0, 5400.0, -1.0, None)
    """
    match = _SPAN.fullmatch(text.strip())
    return float(match[1]) * _SECONDS[match[2]] if match else None


def span(duration: float) -> str:
    """Return a duration in seconds as text.

    >>> span(19.26), span(7384)
    ('19.3 s', '2:03:04')
    """
    return f"{duration:.1f} s" if duration < _MINUTES else str(timedelta(seconds=round(duration)))
