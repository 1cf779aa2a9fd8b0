"""What a runner's frames must hold: one table, which the supervisor applies before it uses any field.

A channel may bring anything: what does not fit is a :class:`~launch.remote.base.frames.ProtocolError`, never
another exception.
"""

from __future__ import annotations

from typing import Any, Callable  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base import frames, timing
from launch.remote.base.frames import ProtocolError

__all__ = ["is_output", "output", "printed", "read"]

Shape = Callable[[object], bool]

_TEXT = 64 << 10
_MANY = 1 << 16
_RANKS = (1 << 31) - 1
_STATUSES = 255
_SIGNALS = 127
_PIDS = 1 << 22
_WORD = 64
_LINE = 400
"""As long as a runner makes them: launch.remote.lines.line_patterns.SHOWN."""
_METRICS = 32
_GPUS = 64
_YEAR_9999 = 253402300799
_STREAMS = {frames.OUT: (1, 2), frames.TAIL: (0,)}


def _integer(lowest: int, highest: int) -> Shape:
    return lambda value: isinstance(value, int) and lowest <= value <= highest


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _TEXT


def _all(shape: Shape) -> Shape:
    return _at_most(_MANY, shape)


def _at_most(count: int, shape: Shape) -> Shape:
    return lambda value: isinstance(value, list) and len(value) <= count and all(map(shape, value))


def _pair(first: Shape, second: Shape) -> Shape:
    return lambda value: isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])  # noqa: PLR2004


def _by_name(shape: Shape) -> Shape:
    return lambda value: (
        isinstance(value, dict)
        and len(value) <= _METRICS
        and all(map(_word, value))
        and all(map(shape, value.values()))
    )


def _word(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _WORD


def _line(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LINE


_RANK = _integer(0, _RANKS)
_RANK_OR_NODE = _integer(-1, _RANKS)
_FLAG = _integer(0, 1)
_COUNT = _integer(0, 1 << 62)
_PID = _integer(1, _PIDS)


def _record(shapes: dict[str, Shape]) -> Shape:
    return lambda value: (
        isinstance(value, dict)
        and value.keys() == shapes.keys()
        and all(fits(value[name]) for name, fits in shapes.items())
    )


_KNOWN_OR_NOT = _integer(-1, 1 << 62)
_GPU = _record(
    dict.fromkeys(
        ("index", "utilisation", "memory_used", "memory_total", "power_mw", "clock_events"), _KNOWN_OR_NOT
    )
)
_NODE_SAMPLE = _record(
    {
        **dict.fromkeys(("cpu_permille", "memory_used", "memory_total", "net_rx", "net_tx"), _COUNT),
        **{"ib_rx": _KNOWN_OR_NOT, "ib_tx": _KNOWN_OR_NOT, "gpus": _at_most(_GPUS, _GPU)},
    }
)
_RANK_SAMPLE = _record(
    {
        **{"rank": _RANK, "cpu_permille": _COUNT, "memory": _COUNT, "silent_ms": _COUNT},
        **{"metrics": _by_name(_word), "lines": _by_name(_line)},
    }
)
_SHAPES: dict[bytes, dict[str, Shape]] = {
    frames.HELLO: {
        **{"rank": _RANK_OR_NODE, "local_rank": _RANK_OR_NODE, "node": _text, "pid": _PID},
        **{"token": _text, "proof": _text},
    },
    frames.HELD: {},
    frames.READY: {"ports": _all(_integer(1, 65535)), "network": _word},
    frames.STARTED: {"pids": _all(_PID), "time_us": _COUNT},
    frames.EXIT: {
        **{"rank": _RANK, "status": _integer(0, _STATUSES), "signal": _integer(0, _SIGNALS)},
        **{"stopped": _FLAG, "time_us": _COUNT},
    },
    frames.FAILED: {"reasons": _all(_text)},
    frames.HEALTH: {
        "findings": _all(
            _record(
                {
                    **dict.fromkeys(("rule", "subject", "measured", "expected", "source", "remedy"), _text),
                    "level": ("error", "warning", "unknown").__contains__,
                }
            )
        )
    },
    frames.SAMPLE: {"node": _at_most(1, _NODE_SAMPLE), "ranks": _all(_RANK_SAMPLE)},
    frames.STACKS: {
        **{"request": _COUNT, "part": _integer(0, timing.DEBUG_PIECES - 1)},
        **{"of": _integer(1, timing.DEBUG_PIECES), "text": _text},
    },
    frames.BUSY: {"taken": _all(_pair(_integer(0, _MANY), _text))},
    frames.DONE: {"left": _all(_PID), "ended": _all(_pair(_text, _COUNT))},
    frames.EVICTION: {"type": _text, "at": _integer(0, _YEAR_9999), "left_ms": _COUNT, "at_once": _FLAG},
    frames.NOTE: {
        **{"rank": _RANK_OR_NODE, "log": _text, "bytes": _COUNT, "lines": _COUNT, "lost": _COUNT},
        "why": _text,
    },
}


def read(kind: bytes, payload: bytes) -> Any:
    """Return the fields of a runner's frame, checked. Raise
    :class:`~launch.remote.base.frames.ProtocolError`.

    >>> read(frames.HELD, frames.pack({}))
    {}
    """
    shapes = _SHAPES.get(kind)
    if shapes is None:
        raise ProtocolError(f"no runner sends a frame of type {kind!r}")
    fields = frames.unpack(payload)
    if not isinstance(fields, dict) or fields.keys() != shapes.keys():
        raise ProtocolError(f"a frame of type {kind!r} without its fields {sorted(shapes)}")
    for name, fits in shapes.items():
        if not fits(fields[name]):
            raise ProtocolError(f"a frame of type {kind!r}: {name} is {str(fields[name])[:40]!r}")
    return fields


def is_output(kind: bytes) -> bool:
    """Return whether frames of this type are ranks' output: a header and bytes, no fields."""
    return kind in _STREAMS


def output(kind: bytes, payload: bytes) -> int:
    """Return the rank whose output a frame holds. Raise :class:`~launch.remote.base.frames.ProtocolError`."""
    if len(payload) < frames.OUTPUT.size:
        raise ProtocolError(f"a frame of type {kind!r} with {len(payload)} bytes")
    rank, stream = frames.OUTPUT.unpack_from(payload)
    if stream not in _STREAMS[kind]:
        raise ProtocolError(f"a frame of type {kind!r}: stream {stream}")
    return int(rank)


def printed(kind: bytes, payload: bytes) -> tuple[int, bytes | None]:
    """Return the stream and the bytes of a frame of output; no bytes for a frame about output."""
    if kind != frames.OUT:
        return 0, None
    return frames.OUTPUT.unpack_from(payload)[1], payload[frames.OUTPUT.size :]
