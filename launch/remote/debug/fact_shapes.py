"""The strict reader of a node's report: a rank or a runner may send anything."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Shape = Any
    """A dict's keys with the shapes of their values, a list of the one shape of its items, or a type."""
    from launch.remote.debug.debug_records import NodeFacts

__all__ = ["NotFacts", "read_facts"]

_MOST = 4096
"""Entries of a list."""
_LONGEST = 4096
"""Characters of a text."""
_LARGEST = 1 << 62

_FRAME: Shape = {"function": str, "file": str, "line": int, "text": str}
_PROCESS: Shape = {
    **dict.fromkeys(("pid", "inner_pid", "cpu_ms", "ended_ms", "io", "switches", "received"), int),
    **dict.fromkeys(("name", "state", "kernel_function", "problem"), str),
    "threads": [{"name": str, "frames": [_FRAME]}],
    "later": [{"frames": [_FRAME]}],
    "unsent": [{"address": str, "port": int, "bytes": int, "retransmits": int}],
}
_NODE: Shape = {
    "looked_ms": int,
    "ranks": [
        {
            "rank": int,
            "processes": [_PROCESS],
            "collective": [{"sequence": int, "name": str, "state": str, "group": str}],
        }
    ],
    "ports": [{"name": str, "state": str, "received": int, "sent": int}],
    "gpus": [{"index": int, "clock_events": int, "memory_use": int, "error": str}],
    "ras": [
        {
            **dict.fromkeys(("group", "host", "state"), str),
            **dict.fromkeys(("rank", "pid", "operations"), int),
        }
    ],
    "problems": [str],
}


class NotFacts(Exception):
    """A report that is not one."""


def read_facts(text: str) -> NodeFacts:
    """Return a node's report. Raise :class:`NotFacts`, naming the place, for anything else."""
    if not text:
        raise NotFacts("what looks at the ranks did not come to an end in time")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotFacts(f"not JSON: {str(error)[:80]}") from None
    _check(value, _NODE, "report")
    facts: NodeFacts = value
    return facts


def _check(value: object, shape: Shape, at: str) -> None:
    if shape is int:
        fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
    elif shape is str:
        fits = isinstance(value, str) and len(value) <= _LONGEST
    elif isinstance(shape, list):
        fits = isinstance(value, list) and len(value) <= _MOST
    else:
        fits = isinstance(value, dict) and value.keys() == shape.keys()
    if not fits:
        raise NotFacts(f"{at} is {str(value)[:40]!r}")
    if isinstance(value, list):
        for item in value:
            _check(item, shape[0], at)
    elif isinstance(value, dict):
        for name, inner in shape.items():
            _check(value[name], inner, name)
