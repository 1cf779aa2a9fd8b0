"""Frames and their payloads."""

from __future__ import annotations

from typing import Any

import pytest

from launch.remote.base import frames


@pytest.mark.parametrize(
    "value",
    [0, -7, "", "a b\n$'\"", "日本", "\udcff", [], {}, [1, ["x"], {"k": [2]}], {"env": {"A": "1:2e3"}}],
)
def test_what_is_packed_comes_back(value: Any) -> None:
    assert frames.unpack(frames.pack(value)) == value


@pytest.mark.parametrize("data", [b"", b"i1", b"5:abc", b"l1:a", b"d1:ae", b"i1ei2e", b"x"])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(frames.ProtocolError):
        frames.unpack(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"l" * 100_000 + b"e" * 100_000, id="100,000 lists deep"),
        pytest.param(b"d1:a" * 100_000, id="100,000 dicts deep"),
        pytest.param(b"i" + b"9" * 100_000 + b"e", id="a number of 100,000 digits"),
        pytest.param(b"9" * 100_000 + b":", id="a length of 100,000 digits"),
        pytest.param(b"99999999999999:abc", id="a length beyond the data"),
        pytest.param(b"-1:abc", id="a negative length"),
        pytest.param(b"i1_0e", id="a number as Python writes it"),
        pytest.param(b"i 1e", id="a number with a space"),
        pytest.param(b"ie", id="a number without digits"),
        pytest.param(b"di1ei2ee", id="a dict whose key is a number"),
        pytest.param(b"dle1:ae", id="a dict whose key is a list"),
        pytest.param(b"d1:a1:b1:ce", id="a dict with a key too many"),
    ],
)
def test_what_would_raise_or_cost_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(frames.ProtocolError):
        frames.unpack(data)


def test_values_without_a_form_are_refused() -> None:
    with pytest.raises(TypeError, match="float cannot be packed"):
        frames.pack({"x": 1.5})


def test_frames_come_back_however_the_stream_is_cut() -> None:
    sent = [(frames.OUT, b"abc"), (frames.BEAT, b""), (frames.EXIT, bytes(300))]
    stream = b"".join(frames.frame(kind, payload) for kind, payload in sent)
    for size in (1, 2, 7, len(stream)):
        decoder = frames.Decoder()
        got = []
        for start in range(0, len(stream), size):
            got += decoder.feed(stream[start : start + size])
        assert got == sent


def test_a_length_that_cannot_be_true_is_refused() -> None:
    with pytest.raises(frames.ProtocolError, match="a frame of"):
        frames.Decoder().feed(b"SSH-2.0-OpenSSH_9.2\r\n")


def test_a_channel_may_take_shorter_frames_only() -> None:
    decoder = frames.Decoder(limit=10)
    assert decoder.feed(frames.frame(frames.OUT, bytes(10))) == [(frames.OUT, bytes(10))]
    with pytest.raises(frames.ProtocolError, match="a frame of 11 bytes"):
        decoder.feed(frames.HEADER.pack(frames.OUT, 11))
