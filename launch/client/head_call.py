"""A long call to a head: a request that it works on for minutes, and answers, line by line, as it goes."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Mapping
from typing import TypeVar

from launch.client.rpc import check, rpc_argv
from launch.errors import GiveUpError
from launch.host import Host
from launch.remote.store.tree_node import MARK

__all__ = ["call_head"]

_Answer = TypeVar("_Answer")
_SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a command, for its exit status."""


def call_head(
    _answer: type[_Answer],
    head: Host,
    remote: str,
    word: str,
    call: Mapping[str, object],
    on_progress: Callable[[_Answer], object],
    *,
    purpose: str,
    limit_s: float,
) -> _Answer:
    """Send a request to the command ``word``, pass its progress on; return the last line of the answer.

    ``purpose`` completes "it stopped before ...". Raises the errors of :func:`launch.client.rpc.check`, and
    :class:`~launch.errors.GiveUpError` where a signal ended the command or it gave no answer.
    """
    data = json.dumps(call).encode()
    last: list[_Answer] = []
    rest = b""

    def take(piece: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(MARK):
                answer = json.loads(line[len(MARK) :])
                if answer["t"] == "progress":
                    on_progress(answer)
                elif answer["t"] != "beat":
                    last.append(answer)

    stdin = io.BytesIO(b"%010d" % len(data) + data)
    done = head.stream(rpc_argv(remote, word), take, stdin=stdin, timeout=limit_s)
    if not last and 0 < done.exit_status - _SIGNALLED <= signal.SIGRTMAX:
        ended = f"signal {done.exit_status - _SIGNALLED} ended it before {purpose}"
        raise GiveUpError(f"{head.name}: {ended}; launch again")
    check(done, head)
    if not last:
        raise GiveUpError(f"{head.name}: it stopped before {purpose}")
    return last[-1]
