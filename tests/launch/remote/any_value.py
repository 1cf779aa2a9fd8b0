"""Values of a declared type as whoever edits an answer would choose them: at its bounds, and hostile."""

from __future__ import annotations

import random
from typing import Any, Literal, get_args, get_origin, get_type_hints

from launch.remote.reading import Malformed, read

__all__ = ["any_value"]

_TEXTS = ("node000000", "t-1", "0", "5", "", "RUNNING", "a\nb", "9" * 50, "\udcff", "\x1b[2J\x07[/red]")
_NUMBERS = (0, 1, 5, -1, 0.5, 1e-300, 1e300, -1e300, 1772370000.0, 253402300799, (1 << 63) - 1, -(1 << 62))


def any_value(kind: Any, draw: random.Random) -> Any:
    """A value that :func:`~launch.remote.reading.read` takes as a ``kind``."""
    origin, inner = get_origin(kind), get_args(kind)
    if hasattr(kind, "__required_keys__"):
        hints = get_type_hints(kind)
        chosen = [name for name in hints if name in kind.__required_keys__ or draw.random() < 0.7]
        return {name: any_value(hints[name], draw) for name in chosen}
    if origin is list:
        return [any_value(inner[0], draw) for _ in range(draw.choice((0, 1, 2, 3)))]
    if origin is tuple:
        return [any_value(one, draw) for one in inner]
    if origin is dict:
        return {any_value(inner[0], draw): any_value(inner[1], draw) for _ in range(draw.choice((0, 1, 2)))}
    if inner:
        one = draw.choice(inner)
        return one if origin is Literal else any_value(one, draw)  # else a union
    return draw.choice([one for one in (*_TEXTS, *_NUMBERS, True, False, None) if _fits(kind, one)])


def _fits(kind: Any, value: object) -> bool:
    try:
        read(kind, value)
    except Malformed:
        return False
    return True
