"""The job's own metrics: numbers that its ranks print, each found by a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.errors import InputError

__all__ = ["check_metrics"]

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_LONGEST = 500
_MOST = 12


def check_metrics(metrics: Mapping[str, str]) -> None:
    """Check the pattern of each metric, by name. Raise :class:`~launch.errors.InputError`.

    >>> check_metrics({"psnr": r"PSNR: ([0-9.]+) dB"})
    >>> check_metrics({"psnr": "PSNR: [0-9.]+"})
    Traceback (most recent call last):
    ...
    launch.errors.InputError: metrics psnr = 'PSNR: [0-9.]+': has 0 groups; put one pair of parentheses around the number
    """  # noqa: E501
    if len(metrics) > _MOST:
        raise InputError("metrics", len(metrics), f"are more than {_MOST}", "give fewer")
    for name, pattern in metrics.items():
        key = f"metrics {name}"
        if not _NAME.fullmatch(name):
            remedy = "use up to 32 lower-case letters, digits and _, beginning with a letter"
            raise InputError(key, None, "is not a valid name for a metric", remedy)
        if len(pattern) > _LONGEST:
            raise InputError(key, None, f"has {len(pattern)} characters", f"use at most {_LONGEST}")
        try:
            groups = re.compile(pattern).groups
        except (re.error, RecursionError, OverflowError) as error:
            remedy = "write it as Python's module re does"
            raise InputError(key, pattern, f"is not a pattern: {error}", remedy) from None
        if groups != 1:
            remedy = "put one pair of parentheses around the number"
            raise InputError(key, pattern, f"has {groups} groups", remedy)
