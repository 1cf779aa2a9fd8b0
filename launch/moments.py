"""Times as all output shows them: in UTC, with the zone beside each, or in the heading of its column."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["cell", "utc"]


def utc(when: datetime | None, *, seconds: bool = True) -> str:
    """Return a time in UTC with its zone; empty for None.

    >>> from datetime import timedelta, timezone
    >>> when = datetime(2026, 11, 27, 15, 5, 9, tzinfo=timezone(timedelta(hours=1)))
    >>> utc(when), utc(when, seconds=False), utc(None)
    ('2026-11-27 14:05:09 UTC', '2026-11-27 14:05 UTC', '')
    """
    return "" if when is None else f"{cell(when, seconds=seconds)} UTC"


def cell(when: datetime | None, *, seconds: bool = True) -> str:
    """Return a time for a column whose heading ends with ``(UTC)``; empty for None."""
    return "" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M{':%S' * seconds}}"
