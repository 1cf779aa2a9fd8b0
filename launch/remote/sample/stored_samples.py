"""Readers of a job's samples in its folder on the head.

Ranks run as the same user and may write there: what is longer than its writer makes it is not read, and a
course of another form is none.
"""

from __future__ import annotations

import json

from launch.remote.base.files import read_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.sample.sample_records import History, Live

__all__ = ["HISTORY", "LIVE", "history", "live"]

LIVE, HISTORY = "samples.json", "history.json"
_MOST = 32 << 20
"""Bytes of a file that are read: four times what its writer keeps to on 300 nodes."""
_LARGEST = 1.797e308
_COUNTS = ("attempt", "started", "checkpoints", "checkpoint_s")
_STEPS = ("ended", "first_step", "first_step_at", "last_step", "last_step_at")
"""Fields of a launch that may be None."""


def live(folder: str) -> Live | None:
    """Return the newest samples of a job; None where there are none, or where the file is torn."""
    found: Live | None = _read(f"{folder}/{LIVE}", ("time", "attempt", "nodes", "ranks"))  # type: ignore[assignment]
    return found


def history(folder: str) -> History | None:
    """Return a job's course; None where there is none, or where the file is torn or damaged."""
    found = _read(f"{folder}/{HISTORY}", ("start", "interval_s", "nodes", "attempts"))
    return found if found is not None and _is_course(found) else None  # type: ignore[return-value]


def _is_course(found: dict[str, object]) -> bool:
    nodes, attempts, interval_s = found["nodes"], found["attempts"], found["interval_s"]
    lines = found.get("lines", [])
    return (
        _is_number(found["start"])
        and _is_number(interval_s)
        and interval_s > 0  # type: ignore[operator]
        and isinstance(nodes, dict)
        and all(isinstance(its, dict) and all(map(_is_series, its.values())) for its in nodes.values())
        and isinstance(attempts, list)
        and all(map(_is_launch, attempts))
        and isinstance(lines, list)
        and all(map(_is_line, lines))
    )


def _is_line(one: object) -> bool:
    return (
        isinstance(one, dict)
        and all(isinstance(one.get(name), str) for name in ("metric", "node", "line"))
        and isinstance(one.get("rank"), int)
        and _is_number(one.get("value"))
    )


def _is_launch(one: object) -> bool:
    return (
        isinstance(one, dict)
        and one.keys() >= {*_COUNTS, *_STEPS}
        and all(_is_number(one[name]) for name in _COUNTS)
        and _is_series([one[name] for name in _STEPS])
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and _is_series([value])


def _is_series(values: object) -> bool:
    """Return whether these are finite numbers and gaps."""
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float, type(None)}:
        return False
    known = [value for value in values if value is not None]
    return not known or -_LARGEST <= min(known) <= max(known) <= _LARGEST


def _read(path: str, fields: tuple[str, ...]) -> dict[str, object] | None:
    try:
        found = json.loads(read_regular(path, _MOST), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() >= set(fields) else None


def _refuse(constant: str) -> float:
    raise ValueError(constant)
