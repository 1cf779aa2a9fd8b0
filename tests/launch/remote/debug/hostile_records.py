"""Files in place of a rank's flight record that take time, memory or the stack of whoever loads them."""

from __future__ import annotations

import pickle
from collections.abc import Callable

__all__ = ["HOSTILE"]

ENTRY = {
    "record_id": 0,
    "collective_seq_id": 1,
    "profiling_name": "nccl:all_reduce",
    "process_group": ["0", "default_pg"],
    "state": "scheduled",
    "retired": False,
    "is_p2p": False,
}
_MILLION = 1 << 20


def _shared_text() -> bytes:
    """A name that is a list of two references to a list of two references, and so on: its text has 2**60
    parts."""
    name: object = ["x"]
    for _ in range(60):
        name = [name, name]
    return pickle.dumps({"entries": [{**ENTRY, "profiling_name": name}]}, protocol=2)


def _record(**fields: object) -> bytes:
    return pickle.dumps({"entries": [{**ENTRY, **fields}]}, protocol=2)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a pickle nested a million deep": lambda: b"\x80\x02" + b"]" * _MILLION + b"a" * (_MILLION - 1) + b".",
    "a pickle of 16 million dicts": lambda: b"\x80\x02](" + b"}" * (15 * _MILLION) + b"e.",
    "a memo of 2 thousand million places": lambda: b"\x80\x02]r\xff\xff\xff\x7f.",
    "bytes of 2**62": lambda: b"\x80\x04\x8e" + bytes(7) + b"\x40x",
    "a name whose parts are shared": _shared_text,
    # The hash of a tuple of two references to such a tuple, and so on, takes 2**60 steps in one call of C.
    "a key whose parts are shared": lambda: b"\x80\x02}K\x01\x85" + b"2\x86" * 60 + b"K\x01s.",
    "a number of 15 million digits": lambda: b"I" + b"9" * (15 * _MILLION) + b"\n.",
    "JSON nested 15 million deep": lambda: b'{"entries": ' + b"[" * (15 * _MILLION),
    "JSON of 5 million dicts": lambda: b'{"entries": [' + b"{}," * (5 * _MILLION) + b"{}]}",
    "a JSON number of 15 million digits": lambda: b'{"entries": ' + b"9" * (15 * _MILLION) + b"}",
    "more than is read": lambda: bytes(16 * _MILLION + 1),
    "a number that no report takes": lambda: _record(collective_seq_id=1 << 70),
    "a negative number": lambda: _record(collective_seq_id=-1),
    "a group that is no list": lambda: _record(process_group=7),
    "a torn file": lambda: _record()[:-5],
}
