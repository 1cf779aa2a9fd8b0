"""Samples as Prometheus' remote write 1.0 sends them: a protobuf message, compressed by snappy.

Both formats are written by hand, because nodes have the standard library alone. Sources: "Prometheus
Remote-Write 1.0 specification" (prometheus.io/docs/specs/remote_write_spec) for the message, the order of
labels and the stale marker; "Encoding" (protobuf.dev) for the wire types; google/snappy,
format_description.txt, for the block format. Blocks have literals only, three bytes for each 64 KiB, which
costs a node no processor time.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Labels = tuple[tuple[str, str], ...]
    """Names and values, sorted by name."""
    Series = tuple[Labels, float]
    """Labels of a series, the metric's name among them, and its value."""

__all__ = ["HEADERS", "REQUEST_SERIES", "STALE", "encode_requests", "labels_of", "snappy_block"]

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
"""Headers that the specification asks for; 0.1.0 is the version that remote write 1.0 announces."""
REQUEST_SERIES, REQUEST_BYTES = 1000, 256 << 10
"""Most series and most bytes of a request; Prometheus sends at most 2000 samples (max_samples_per_send)."""
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""Value that ends a series: a NaN of its own."""
_STALE_BYTES = struct.pack("<Q", 0x7FF0000000000002)
_VARINT_MORE, _VARINT_BITS = 0x80, 7
_LENGTH_DELIMITED, _FIXED_64 = 2, 1
_LITERAL_BYTES = 1 << 16
"""Longest literal whose length, less one, has two bytes."""
_SHORT, _ONE_BYTE, _TWO_BYTES = 60, 60 << 2, 61 << 2


def labels_of(name: str, labels: Iterable[tuple[str, str]]) -> Labels:
    """Return a series' labels in the order that receivers ask for; an empty value is as if it were absent.

    >>> labels_of("up", [("node", "a"), ("job", ""), ("instance", "b")])
    (('__name__', 'up'), ('instance', 'b'), ('node', 'a'))
    """
    return tuple(sorted((("__name__", name), *((label, value) for label, value in labels if value))))


def encode_requests(series: Iterable[Series], time_ms: int) -> Iterator[tuple[bytes, int]]:
    """Yield the bodies of the requests for these series at a Unix time, and how many series each has."""
    parts: list[bytes] = []
    size = 0
    for labels, value in series:
        part = _field(1, _time_series(labels, value, time_ms))
        if parts and (len(parts) >= REQUEST_SERIES or size + len(part) > REQUEST_BYTES):
            yield snappy_block(b"".join(parts)), len(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        yield snappy_block(b"".join(parts)), len(parts)


def snappy_block(data: bytes) -> bytes:
    """Return the data as a snappy block of literals.

    >>> snappy_block(b"abc").hex(), snappy_block(b"").hex()
    ('0308616263', '00')
    """
    block = [_varint(len(data))]
    for start in range(0, len(data), _LITERAL_BYTES):
        piece = data[start : start + _LITERAL_BYTES]
        last = len(piece) - 1
        if last < _SHORT:
            block.append(bytes((last << 2,)))
        elif last < 1 << 8:
            block.append(bytes((_ONE_BYTE, last)))
        else:
            block.append(struct.pack("<BH", _TWO_BYTES, last))
        block.append(piece)
    return b"".join(block)


def _time_series(labels: Labels, value: float, time_ms: int) -> bytes:
    named = [_field(1, _text(1, name) + _text(2, text)) for name, text in labels]
    # A NaN may lose its bits on the way through a float, and only these bits mean stale.
    number = _STALE_BYTES if value is STALE else struct.pack("<d", value)
    sample = _key(1, _FIXED_64) + number + _key(2, 0) + _varint(time_ms)
    return b"".join(named) + _field(2, sample)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "replace"))


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _LENGTH_DELIMITED) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Return a number of at least 0 in groups of seven bits, the lowest first.

    >>> _varint(1).hex(), _varint(300).hex()
    ('01', 'ac02')
    """
    groups = bytearray()
    while value >= _VARINT_MORE:
        groups.append(value & (_VARINT_MORE - 1) | _VARINT_MORE)
        value >>= _VARINT_BITS
    groups.append(value)
    return bytes(groups)
