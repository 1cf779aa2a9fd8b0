"""A command of the operator that a head answers for as long as it takes: its request, its end, its answer.

The request is ten digits and as many bytes of JSON on stdin, the answer lines as a push's
(:mod:`launch.remote.store.tree_node`): beats, progress, and at last what the work returns.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NoReturn

from launch.remote.store.tree_node import Up

__all__ = ["serve_call"]


def serve_call(stdin: BinaryIO, limit: float, work: Callable[[Any, Up], Mapping[str, object]]) -> int:
    """Answer one request by ``work``, within ``limit`` seconds; return the exit status of the process."""
    request = json.loads(stdin.read(int(stdin.read(10))))
    up = Up(sys.stdout.buffer)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(int(limit))
    threading.Thread(target=_end_with, args=(up,), daemon=True).start()
    try:
        answer = work(request, up)
    except (OSError, ValueError, EOFError) as error:
        answer = {"t": "failed", "reason": str(error), "lines": []}
    up.send(answer)
    return 0


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _end_with(up: Up) -> None:
    """End this process, with its tools, once nobody reads the answer any more."""
    up.broken.wait()
    os.kill(os.getpid(), signal.SIGTERM)
