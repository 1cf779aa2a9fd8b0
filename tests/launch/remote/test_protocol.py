"""Frames and their payloads."""

from __future__ import annotations

from typing import Any

import pytest

from launch.remote import protocol


@pytest.mark.parametrize(
    "value",
    [0, -7, "", "a b\n$'\"", "日本", "\udcff", [], {}, [1, ["x"], {"k": [2]}], {"env": {"A": "1:2e3"}}],
)
def test_what_is_packed_comes_back(value: Any) -> None:
    assert protocol.unpack(protocol.pack(value)) == value


@pytest.mark.parametrize("data", [b"", b"i1", b"5:abc", b"l1:a", b"d1:ae", b"i1ei2e", b"x"])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(protocol.ProtocolError):
        protocol.unpack(data)


def test_values_without_a_form_are_refused() -> None:
    with pytest.raises(TypeError, match="float cannot be packed"):
        protocol.pack({"x": 1.5})


def test_frames_come_back_however_the_stream_is_cut() -> None:
    sent = [(protocol.OUT, b"abc"), (protocol.BEAT, b""), (protocol.EXIT, bytes(300))]
    stream = b"".join(protocol.frame(kind, payload) for kind, payload in sent)
    for size in (1, 2, 7, len(stream)):
        decoder = protocol.Decoder()
        got = []
        for start in range(0, len(stream), size):
            got += decoder.feed(stream[start : start + size])
        assert got == sent


def test_a_length_that_cannot_be_true_is_refused() -> None:
    with pytest.raises(protocol.ProtocolError, match="a frame of"):
        protocol.Decoder().feed(b"SSH-2.0-OpenSSH_9.2\r\n")
