"""Whatever comes over a channel is what a runner sends, or a ProtocolError."""

from __future__ import annotations

import random
from typing import Any

import pytest

from launch.remote.base import frames
from launch.remote.base.frames import ProtocolError
from launch.remote.head.runners import frame_fields

HELLO = {"rank": 3, "local_rank": 1, "node": "node000001", "pid": 71, "token": "t", "proof": ""}
EXIT = {"rank": 3, "status": 137, "signal": 9, "stopped": 1, "time_us": 1_767_225_600_000_000}
NOTE = {"rank": -1, "log": "setup-node000001", "bytes": 5, "lines": 1, "lost": 0, "why": ""}
EVICTION = {"type": "Preempt", "at": 1_767_225_600, "left_ms": 30_000, "at_once": 1}
FRAMES: dict[bytes, dict[str, Any]] = {
    frames.HELLO: HELLO,
    frames.HELD: {},
    frames.READY: {"ports": [2222], "network": ""},
    frames.STARTED: {"pids": [71, 72], "time_us": 1_767_225_600_000_000},
    frames.EXIT: EXIT,
    frames.FAILED: {"reasons": ["no room"]},
    frames.BUSY: {"taken": [[0, "train-1"], [1, ""]]},
    frames.DONE: {"left": [], "ended": []},
    frames.EVICTION: EVICTION,
    frames.NOTE: NOTE,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_what_runners_send_is_taken(kind: bytes) -> None:
    assert frame_fields.read(kind, frames.pack(FRAMES[kind])) == FRAMES[kind]


@pytest.mark.parametrize("kind", FRAMES)
def test_a_field_too_few_or_too_many_is_refused(kind: bytes) -> None:
    fields = FRAMES[kind]
    for name in fields:
        with pytest.raises(ProtocolError, match="without its fields"):
            frame_fields.read(kind, frames.pack({key: fields[key] for key in fields if key != name}))
    with pytest.raises(ProtocolError, match="without its fields"):
        frame_fields.read(kind, frames.pack(dict(fields, more=1)))


@pytest.mark.parametrize("kind", FRAMES)
def test_a_field_of_another_type_is_refused(kind: bytes) -> None:
    for name, value in FRAMES[kind].items():
        for other in (7, "x", [["x"]], {"a": 1}):
            if type(other) is type(value) and not isinstance(other, list):
                continue
            with pytest.raises(ProtocolError):
                frame_fields.read(kind, frames.pack(dict(FRAMES[kind], **{name: other})))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (frames.EXIT, dict(EXIT, status=256)),
        (frames.EXIT, dict(EXIT, status=-1)),
        (frames.EXIT, dict(EXIT, rank=-1)),
        (frames.EXIT, dict(EXIT, stopped=2)),
        (frames.READY, {"ports": [0], "network": ""}),
        (frames.READY, {"ports": [65536], "network": ""}),
        (frames.BUSY, {"taken": [[0]]}),
        (frames.BUSY, {"taken": [[0, "a", "b"]]}),
        (frames.EVICTION, dict(EVICTION, at=1 << 60)),
        (frames.DONE, {"left": [0], "ended": []}),
        (frames.DONE, {"left": [], "ended": [["azcopy", -1]]}),
    ],
)
def test_a_value_out_of_its_range_is_refused(kind: bytes, fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        frame_fields.read(kind, frames.pack(fields))


@pytest.mark.parametrize("kind", [frames.SPEC, frames.GO, frames.STOP, frames.STATE, b"?"])
def test_what_runners_never_send_is_refused(kind: bytes) -> None:
    with pytest.raises(ProtocolError, match="no runner sends"):
        frame_fields.read(kind, frames.pack({}))


@pytest.mark.parametrize("payload", [b"", b"7", b"le", b"i1e", b"1:x", b"de" * 2, b"l" * 100_000])
def test_no_payload_raises_anything_else(payload: bytes) -> None:
    for kind in FRAMES:
        with pytest.raises(ProtocolError):
            frame_fields.read(kind, payload)


def test_noise_raises_nothing_else() -> None:
    chance = random.Random(1)
    for _ in range(20_000):
        kind, fields = chance.choice(list(FRAMES.items()))
        payload = bytearray(frames.pack(fields))
        for _ in range(chance.randint(1, 4)):
            payload[chance.randrange(len(payload))] = chance.choice(b"0123456789dlie:-\xff_ ")
        try:
            frame_fields.read(kind, bytes(payload))
        except ProtocolError:
            continue


@pytest.mark.parametrize("payload", [b"", bytes(4), frames.OUTPUT.pack(3, 0), frames.OUTPUT.pack(3, 3)])
def test_output_has_a_rank_and_a_stream(payload: bytes) -> None:
    assert frame_fields.output(frames.OUT, frames.OUTPUT.pack(3, 2) + b"words") == 3
    with pytest.raises(ProtocolError):
        frame_fields.output(frames.OUT, payload)
