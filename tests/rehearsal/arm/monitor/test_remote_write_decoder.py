"""The receiver reads all of snappy and of remote write, and refuses what their specifications forbid."""

from __future__ import annotations

import pytest

from rehearsal.arm.monitor.remote_write_decoder import LONGEST, WireError, read_request, unpack_snappy


def series(*labels: tuple[str, str]) -> bytes:
    """A request's message with one series and one sample."""
    pairs = b"".join(field(1, field(1, a.encode()) + field(2, b.encode())) for a, b in labels)
    return field(1, pairs + field(2, b"\x09" + bytes(8) + b"\x10\x01"))


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def block(message: bytes) -> bytes:
    """The message as one literal."""
    assert len(message) < 61
    return bytes([len(message), (len(message) - 1) << 2]) + message


@pytest.mark.parametrize(
    ("packed", "data"),
    [
        ("00", ""),
        ("0a" + "08616263" + "0d03", "abcabcabca"),  # a copy of seven bytes from three bytes before
        ("08" + "0c61626364" + "0e0400", "abcdabcd"),  # an offset of two bytes
        ("08" + "0c61626364" + "0f04000000", "abcdabcd"),  # an offset of four
        ("01" + "f00061", "a"),  # a literal's length in a byte of its own
        ("01" + "f4000061", "a"),
    ],
)
def test_every_element_of_a_block_is_read(packed: str, data: str) -> None:
    assert unpack_snappy(bytes.fromhex(packed)).decode() == data


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        ("", "it breaks off"),
        ("05" + "0861", "it breaks off"),
        ("05" + "0061", "1 bytes, not the 5"),
        ("01" + "04616263", "more than the 1 bytes"),
        ("08" + "0061" + "0d02", "a copy begins before the data"),
        ("08" + "0061" + "0d00", "a copy begins before the data"),
        ("ffffffff7f", f"more than {LONGEST}"),
        ("ff" * 11, "more than ten bytes"),
    ],
)
def test_a_torn_or_wrong_block_is_refused(packed: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        unpack_snappy(bytes.fromhex(packed))


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([("__name__", "a"), ("b", "1"), ("ab", "2")], "not sorted"),
        ([("__name__", "a"), ("b", "1"), ("b", "2")], "repeated"),
        ([("__name__", "a"), ("b", "")], "no value"),
        ([("__name__", "a"), ("b-c", "1")], "wrong name"),
        ([("b", "1")], "no name"),
        ([("__name__", "a b")], "no name"),
    ],
)
def test_labels_that_the_specification_forbids_are_refused(labels: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(WireError, match=why):
        read_request(block(series(*labels)))


def test_a_sample_is_read() -> None:
    (found,) = read_request(block(series(("__name__", "up"), ("job", "a"))))
    assert (found.labels, found.value, found.time_ms) == ({"__name__": "up", "job": "a"}, 0.0, 1)


def test_fields_that_it_does_not_know_are_passed_over() -> None:
    message = field(3, b"metadata") + b"\x28\x07" + series(("__name__", "up"))
    assert len(read_request(block(message))) == 1
