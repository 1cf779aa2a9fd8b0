"""Frames and their payloads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
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


class TestAChannel:
    """What supervisor and runner share: neither ever waits for the other."""

    @pytest.fixture
    def ends(self) -> Iterator[tuple[frames.FrameChannel, int, int]]:
        """A channel, and at its other side what to read from and what to write to."""
        reading, to_channel = os.pipe()
        from_channel, writing = os.pipe()
        yield frames.FrameChannel(reading, writing, 1000), from_channel, to_channel
        for fd in (reading, writing, from_channel, to_channel):
            with suppress(OSError):
                os.close(fd)

    def test_what_the_other_side_does_not_take_yet_waits(
        self, ends: tuple[frames.FrameChannel, int, int]
    ) -> None:
        channel, far, _ = ends
        channel.send_payload(frames.OUT, b"x" * 1_000_000)
        waiting = channel.unsent
        assert 0 < waiting < 1_000_000
        read = 0
        while channel.unsent:
            read += len(os.read(far, 65536))
            channel.flush()
        assert read + len(os.read(far, 1_000_000)) == 1_000_005

    def test_frames_come_whole_and_the_end_is_seen(self, ends: tuple[frames.FrameChannel, int, int]) -> None:
        channel, _, far = ends
        assert channel.receive() == []
        os.write(far, frames.frame(frames.STOP, b"ab")[:6])
        assert (channel.receive(), channel.received) == ([], 6)
        os.write(far, b"b" + frames.frame(frames.BEAT))
        assert channel.receive() == [(frames.STOP, b"ab"), (frames.BEAT, b"")]
        os.close(far)
        assert channel.is_open
        assert (channel.receive(), channel.is_open) == ([], False)

    def test_a_frame_longer_than_any_is_refused(self, ends: tuple[frames.FrameChannel, int, int]) -> None:
        channel, _, far = ends
        os.write(far, frames.HEADER.pack(frames.OUT, 1001))
        with pytest.raises(frames.ProtocolError, match="a frame of 1001 bytes"):
            channel.receive()

    def test_what_nobody_can_get_is_dropped_and_what_has_come_is_still_read(
        self, ends: tuple[frames.FrameChannel, int, int]
    ) -> None:
        channel, reader, far = ends
        os.write(far, frames.frame(frames.EXIT, b"last"))
        os.close(reader)
        channel.send(frames.BEAT)
        assert (channel.is_cut, channel.is_open, channel.unsent) == (True, True, 0)
        channel.send(frames.BEAT)
        assert channel.unsent == 0
        assert channel.receive() == [(frames.EXIT, b"last")]
