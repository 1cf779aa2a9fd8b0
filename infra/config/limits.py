"""Limits of a stack's price and lifetime, and of its disks: ``maxPrice``, ``ttlHours``, ``idleStopMinutes``,
``osDiskGib``."""

from __future__ import annotations

import math
import re

from infra.config.readers import whole_number
from launch.errors import InputError
from launch.numbers import shown

__all__ = [
    "HIGHEST_PRICE",
    "LONGEST_IDLE_MIN",
    "LONGEST_TTL_H",
    "OS_DISK_GIB",
    "SHORTEST_IDLE_MIN",
    "SHORTEST_TTL_H",
    "idle_stop_minutes",
    "max_price",
    "os_disk_gib",
    "spot_price",
    "ttl_hours",
]

SHORTEST_IDLE_MIN = 5
"""Nodes take minutes to boot: a shorter time would stop them before anybody could use them."""

LONGEST_IDLE_MIN = 365 * 24 * 60
"""A year: more is a typing error, and would never pass."""

SHORTEST_TTL_H = 0.1
"""Six minutes, about a node's boot: less would delete nodes before anybody could use them."""

LONGEST_TTL_H = 87_600
"""Ten years: more is a typing error, and may end later than dates go."""

HIGHEST_PRICE = 1_000_000
"""USD per hour, some ten times the price of Azure's dearest cluster: more is a typing error."""

OS_DISK_GIB = 256
"""GiB of a node's OS disk where none are set: room for environments, pushed code, logs and outputs."""

SMALLEST_OS_DISK_GIB, LARGEST_OS_DISK_GIB = 64, 4095
"""GiB of Azure's HPC images (``os_disk_size_gb`` of azhpc-images' packer/source.pkr.hcl), below which Azure
refuses a disk, and its largest OS disk (learn.microsoft.com managed-disks-overview)."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_CENTS = 100_000  # Azure reads a price with five decimals (description of billingProfile in its compute API)


def max_price(key: str, value: object) -> float:
    """Read USD per hour for the whole cluster."""
    remedy = "set it to the most that all nodes together may cost, like 98.50"
    price = _positive(key, value, "a price", remedy)
    if price > HIGHEST_PRICE:
        raise InputError(key, value, f"is more than {HIGHEST_PRICE} USD per hour", remedy)
    return price


def ttl_hours(key: str, value: object) -> float:
    """Read hours, with decimals, from :data:`SHORTEST_TTL_H` to :data:`LONGEST_TTL_H`."""
    remedy = "set it to the hours that the nodes may live, like 48"
    hours = _positive(key, value, "a number of hours", remedy)
    if hours < SHORTEST_TTL_H:
        raise InputError(key, value, f"is below {SHORTEST_TTL_H}: nodes take minutes to boot", remedy)
    if hours > LONGEST_TTL_H:
        raise InputError(key, value, "is more than ten years", remedy)
    return hours


def idle_stop_minutes(key: str, value: object) -> int:
    """Read whole minutes."""
    remedy = f"set it to {SHORTEST_IDLE_MIN} or more minutes, like 30"
    minutes = whole_number(key, value, remedy)
    if minutes < SHORTEST_IDLE_MIN:
        raise InputError(key, shown(value, minutes), "is too short: nodes take minutes to boot", remedy)
    if minutes > LONGEST_IDLE_MIN:
        raise InputError(key, shown(value, minutes), "is more than a year", remedy)
    return minutes


def os_disk_gib(key: str, value: object) -> int:
    """Read whole GiB that a node's image fits into."""
    remedy = f"set it to {SMALLEST_OS_DISK_GIB} or more GiB, like {OS_DISK_GIB}"
    gib = whole_number(key, value, remedy)
    if gib < SMALLEST_OS_DISK_GIB:
        raise InputError(
            key, shown(value, gib), f"is less than the {SMALLEST_OS_DISK_GIB} GiB of the image", remedy
        )
    if gib > LARGEST_OS_DISK_GIB:
        problem = f"is more than Azure's largest OS disk, {LARGEST_OS_DISK_GIB} GiB"
        raise InputError(key, shown(value, gib), problem, remedy)
    return gib


def spot_price(limit: float | None, nodes: int) -> float:
    """Return the maximum price of one spot node in USD per hour, so that all together keep to ``limit``.

    -1 without a limit: Azure then evicts for capacity alone, never for the price.

    >>> spot_price(None, 4), spot_price(10, 3)
    (-1, 3.33333)
    """
    return -1 if limit is None else math.floor(limit / nodes * _CENTS) / _CENTS


def _positive(key: str, value: object, what: str, remedy: str) -> float:
    given = "" if isinstance(value, bool) else str(value).strip()
    # float() would also take 1_000, nan and other digits than ASCII ones.
    number = float(given) if _NUMBER.fullmatch(given) else math.inf
    if not math.isfinite(number):
        raise InputError(key, value, f"is not {what}", remedy)
    if number <= 0:
        raise InputError(key, value, "is not above 0", remedy)
    return number
