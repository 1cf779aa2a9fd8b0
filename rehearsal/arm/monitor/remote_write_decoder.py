"""Reader of Prometheus' remote write 1.0: snappy's block format, and the protobuf message in it.

It is written from the formats' descriptions (google/snappy, format_description.txt; protobuf.dev, "Encoding";
"Prometheus Remote-Write 1.0 specification") and shares nothing with the nodes' writer, so that neither proves
itself. It refuses what the specification forbids.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["LONGEST", "STALE", "Sample", "WireError", "read_request", "unpack_snappy"]

LONGEST = 8 << 20
"""Most bytes of an unpacked message."""
STALE = 0x7FF0000000000002
"""Bits of the value that ends a series."""
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class WireError(ValueError):
    """Bytes that are not a request of remote write 1.0."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of one series."""

    labels: Mapping[str, str]
    value: float
    bits: int
    """The value's 64 bits, which differ from one NaN to another."""
    time_ms: int


def read_request(body: bytes) -> list[Sample]:
    """Return the samples of a request's body. Raise :class:`WireError`."""
    found = []
    for number, part in _fields(unpack_snappy(body)):
        if number == 1:
            found += _series(_bytes(part))
    return found


def unpack_snappy(block: bytes) -> bytes:
    """Return what a block of snappy holds. Raise :class:`WireError`."""
    wanted, at = _varint(block, 0)
    if wanted > LONGEST:
        raise WireError(f"{wanted} bytes are more than {LONGEST}")
    out = bytearray()
    while at < len(block):
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            size = tag >> 2
            if size >= 60:  # noqa: PLR2004  the format's
                extra = size - 59
                size = int.from_bytes(_slice(block, at, extra), "little")
                at += extra
            out += _slice(block, at, size + 1)
            at += size + 1
        else:
            if tag & 3 == 1:
                size, extra, high = 4 + (tag >> 2 & 7), 1, tag >> 5 << 8
            else:
                size, extra, high = 1 + (tag >> 2), (0, 1, 2, 4)[tag & 3], 0
            offset = high + int.from_bytes(_slice(block, at, extra), "little")
            at += extra
            if not 0 < offset <= len(out):
                raise WireError("a copy begins before the data")
            for _ in range(size):
                out.append(out[-offset])
        if len(out) > wanted:
            raise WireError(f"more than the {wanted} bytes that it announces")
    if len(out) != wanted:
        raise WireError(f"{len(out)} bytes, not the {wanted} that it announces")
    return bytes(out)


def _series(message: bytes) -> list[Sample]:
    names: list[tuple[str, str]] = []
    samples: list[tuple[int, int]] = []
    for number, part in _fields(message):
        if number == 1:
            pair = {key: _bytes(text).decode("utf-8", "strict") for key, text in _fields(_bytes(part))}
            names.append((pair.get(1, ""), pair.get(2, "")))
        elif number == 2:  # noqa: PLR2004  the field of samples
            fields = dict(_fields(_bytes(part)))
            samples.append((_number(fields.get(1, 0)), _number(fields.get(2, 0))))
    _check_labels(names)
    return [
        Sample(dict(names), struct.unpack("<d", struct.pack("<Q", bits))[0], bits, time)
        for bits, time in samples
    ]


def _check_labels(names: list[tuple[str, str]]) -> None:
    keys = [name for name, _ in names]
    if keys != sorted(set(keys)):
        raise WireError(f"labels are not sorted, or one is repeated: {keys}")
    if not all(_LABEL.match(name) and value for name, value in names):
        raise WireError(f"a label has a wrong name or no value: {names}")
    if not _METRIC.match(dict(names).get("__name__", "")):
        raise WireError("a series has no name")


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif kind in (_FIXED_64, _FIXED_32):
            size = 8 if kind == _FIXED_64 else 4
            yield number, int.from_bytes(_slice(message, at, size), "little")
            at += size
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield number, _slice(message, at, size)
            at += size
        else:
            raise WireError(f"wire type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it."""
    value = 0
    for index in range(_LONGEST_VARINT):
        (byte,) = _slice(data, at + index, 1)
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004  the last byte
            return value, at + index + 1
    raise WireError("a number has more than ten bytes")


def _slice(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise WireError(f"it breaks off: {size} bytes are missing at {at}")
    return piece


def _bytes(value: bytes | int) -> bytes:
    if not isinstance(value, bytes):
        raise WireError("a number where bytes have to be")
    return value


def _number(value: bytes | int) -> int:
    if not isinstance(value, int):
        raise WireError("bytes where a number has to be")
    return value
