"""A long call to a head: a request that it works on for minutes, and answers, line by line, as it goes."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Mapping
from typing import Any

from launch.client.rpc import check, readable, rpc_argv
from launch.errors import GiveUpError
from launch.host import Host
from launch.remote.reading import Malformed, parse, read
from launch.remote.store.tree_node import MARK

__all__ = ["call_head"]

_SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a command, for its exit status."""
_LONGEST = 16 << 20
"""Bytes of a line; one with the variables of an environment has some kilobytes."""


def call_head(
    answers: object,
    head: Host,
    remote: str,
    word: str,
    call: Mapping[str, object],
    on_progress: Callable[[Any], object],
    *,
    purpose: str,
    limit_s: float,
) -> Any:
    """Send a request to the command ``word``, pass its progress on; return the last line of the answer.

    Each line is one of the types ``answers``, with the field ``t`` as their tag. ``purpose`` completes "it
    stopped before ...". Raises the errors of :func:`launch.client.rpc.check`, and
    :class:`~launch.errors.GiveUpError` where a signal ended the command, or it gave no answer or a malformed
    one.
    """
    data = json.dumps(call).encode()
    last: Any = None
    rest = bytearray()

    def take(piece: bytes) -> None:
        nonlocal last, rest
        rest += piece
        lines: list[bytes] = []
        if b"\n" in piece:
            *lines, begun = bytes(rest).split(b"\n")
            rest = bytearray(begun)
        if len(rest) > _LONGEST:
            raise Malformed(f"a line has more than {_LONGEST >> 20} MiB")
        for line in lines:
            if not line.startswith(MARK):
                continue
            value = parse(line[len(MARK) :])
            if value == {"t": "beat"}:
                continue
            answer = read(answers, value)
            if answer["t"] == "progress":
                on_progress(answer)
            elif answer["t"] != "told":  # one node's result, which the last line has too
                last = answer

    stdin = io.BytesIO(b"%010d" % len(data) + data)
    with readable(head):
        done = head.stream(rpc_argv(remote, word), take, stdin=stdin, timeout=limit_s)
    if last is None and 0 < done.exit_status - _SIGNALLED <= signal.SIGRTMAX:
        ended = f"signal {done.exit_status - _SIGNALLED} ended it before {purpose}"
        raise GiveUpError(f"{head.name}: {ended}; launch again")
    check(done, head)
    if last is None:
        raise GiveUpError(f"{head.name}: it stopped before {purpose}")
    return last
