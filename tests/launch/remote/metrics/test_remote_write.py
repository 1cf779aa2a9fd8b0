"""Prometheus' remote write, byte by byte, and as the rehearsed Azure reads it."""

from __future__ import annotations

import math
import struct

import pytest

from launch.remote.metrics.remote_write import (
    REQUEST_BYTES,
    REQUEST_SERIES,
    STALE,
    encode_requests,
    labels_of,
    snappy_block,
)
from rehearsal.arm.monitor import remote_write_decoder
from rehearsal.arm.monitor.remote_write_decoder import Sample, read_request, unpack_snappy

TIME_MS = 1_700_000_000_123


def sent(*series: tuple[tuple[tuple[str, str], ...], float]) -> list[Sample]:
    """What the receiver reads of one request."""
    ((body, count),) = encode_requests(series, TIME_MS)
    assert count == len(series)
    return read_request(body)


def test_a_request_is_these_bytes() -> None:
    ((body, _),) = encode_requests([(labels_of("up", [("job", "a")]), 1.5)], 300)
    label = b"\x0a\x0e" + b"\x0a\x08__name__" + b"\x12\x02up"
    other = b"\x0a\x08" + b"\x0a\x03job" + b"\x12\x01a"
    sample = b"\x12\x0c" + b"\x09" + struct.pack("<d", 1.5) + b"\x10\xac\x02"
    message = b"\x0a\x28" + label + other + sample
    assert body == bytes([len(message), (len(message) - 1) << 2]) + message


@pytest.mark.parametrize("size", [0, 1, 59, 60, 61, 256, 257, 65535, 65536, 65537, 200_000])
def test_a_block_is_read_as_it_was(size: int) -> None:
    data = bytes(n * 7 % 256 for n in range(size))
    block = snappy_block(data)
    assert unpack_snappy(block) == data
    assert len(block) <= size + 5 + 3 * (size // 65536 + 1)


def test_labels_values_and_times_arrive() -> None:
    labels = labels_of("ranklift_rank_metric", [("metric", 'a "b"\n\\c'), ("node", "nö…de"), ("job", "")])
    (found,) = sent((labels, 0.25))
    assert found.labels == {"__name__": "ranklift_rank_metric", "metric": 'a "b"\n\\c', "node": "nö…de"}
    assert (found.value, found.time_ms) == (0.25, TIME_MS)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e300, 5e-324, math.inf, -math.inf, 10**15])
def test_every_number_arrives(value: float) -> None:
    (found,) = sent((labels_of("a", []), value))
    assert found.value == value


def test_a_users_nan_does_not_end_a_series_and_the_stale_marker_does() -> None:
    nan, end = sent((labels_of("a", []), math.nan), (labels_of("b", []), STALE))
    assert math.isnan(nan.value)
    assert nan.bits != remote_write_decoder.STALE
    assert end.bits == remote_write_decoder.STALE


def test_many_series_are_several_requests_within_both_bounds() -> None:
    small = [(labels_of("a", [("n", str(n))]), n) for n in range(2 * REQUEST_SERIES + 1)]
    assert [count for _, count in encode_requests(small, 0)] == [REQUEST_SERIES, REQUEST_SERIES, 1]
    long = [(labels_of("a", [("n", f"{n}" * 20_000)]), n) for n in range(8)]
    requests = list(encode_requests(long, 0))
    assert len(requests) == 1
    wide = list(encode_requests([(labels_of("a", [("n", f"{n}" + "x" * 100_000)]), n) for n in range(8)], 0))
    assert [count for _, count in wide] == [2, 2, 2, 2]
    assert all(len(body) < REQUEST_BYTES + 1000 for body, _ in wide)
    assert [one.labels["n"] for body, _ in wide for one in read_request(body)][7].startswith("7x")


def test_no_series_is_no_request() -> None:
    assert list(encode_requests([], 0)) == []
