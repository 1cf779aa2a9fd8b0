"""Ending what a job may have left on its nodes, and finding out which of them the head cannot reach."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from launch.remote.head.runners import ssh_start
from launch.remote.log.writer import last_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from launch.remote.base.records import Plan

__all__ = ["clear", "sweep"]

_LIMIT_S = 12.0
"""Seconds for all nodes together."""
_CONNECT_S, _SILENT_S = 10, 3
"""Seconds after which an ssh client gives up on a node."""
_AT_ONCE = 48
_NOT_REACHED = 255
"""ssh's exit status when it could not reach the other side."""


def sweep(
    plan: Plan,
    indexes: Iterable[int],
    silent: Collection[int | None] = (),
    is_last: bool = False,
) -> dict[int, str]:
    """Ends the job's processes on these nodes, all at once; gives those not reached, with ssh's words.

    On ``silent`` ones the ranks end by themselves; they are not waited for as long as the others. Where no
    restart can follow, or ``is_last``, the job's working folder is cleared as well.
    """
    running = {
        index: ssh_start.sweep(plan, index, _SILENT_S if index in silent else _CONNECT_S, is_last)
        for index in indexes
    }
    until = time.monotonic() + _LIMIT_S
    unreached = {}
    for index, process in running.items():
        try:
            _, said = process.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            unreached[index] = "does not answer ssh"
            continue
        if process.returncode == _NOT_REACHED:
            words = last_lines(said, 1)
            unreached[index] = words[0] if words else "ssh does not reach it"
    return unreached


def clear(plan: Plan) -> None:
    """Clear the working folders of a job that has ended and could have been restarted, on all its nodes."""
    nodes = range(len(plan["nodes"]))
    for start in nodes[::_AT_ONCE]:
        sweep(plan, nodes[start : start + _AT_ONCE], is_last=True)
