"""Ending a launch: the first outcome, the grace, what follows it, and the sweep of nodes for what is left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

from launch.remote.base import timing
from launch.remote.base.records import Plan
from launch.remote.head.outcome import Failures, Outcome
from launch.remote.head.runners.node_command import start_on_node
from launch.remote.log.writer import last_lines

__all__ = [
    "CUT_OFF",
    "DROP_RUNNERS",
    "END_MPIRUN",
    "WAIT",
    "Shutdown",
    "Stop",
    "clear_work_dirs",
    "start_sweep",
    "sweep_nodes",
]

WAIT, DROP_RUNNERS, END_MPIRUN, CUT_OFF = range(4)
"""Steps of :meth:`Shutdown.escalation`; each includes those before it."""
_STEPS_AFTER = (
    timing.RUNNER_END_S,
    timing.RUNNER_END_S + timing.MPIRUN_END_S,
    timing.RUNNER_END_S + 2 * timing.MPIRUN_END_S,
)
"""Seconds after the grace: runners that have not reported their end are dropped, mpirun, which takes its time
after an MPI_Abort, gets SIGTERM, and nothing is waited for any more."""
_AT_ONCE = 48
_NOT_REACHED = 255
"""ssh's exit status when it could not reach the other side."""


class Stop(NamedTuple):
    """Decision: end every rank. ``outcome`` is the launch's unless it has one, ``grace`` the seconds between
    SIGTERM and SIGKILL, None for the job's."""

    outcome: Outcome | None = None
    grace: float | None = None


class Shutdown:
    """The end of one launch; ``grace`` is the job's, in seconds."""

    def __init__(self, grace: float) -> None:
        self.outcome: Outcome | None = None
        self.failures = Failures()
        self._grace = grace
        self._since: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the ranks were ordered to end."""
        return self._since is not None

    def begin(self, stop: Stop, now: float) -> float | None:
        """Keep the first outcome; return the grace with which runners must be ordered to end, None where they
        have that order already. Of several graces the shortest counts."""
        if self.outcome is None and stop.outcome is not None:
            self.outcome = self.failures.first or stop.outcome
        grace = self._grace if stop.grace is None else stop.grace
        if self._since is not None and grace >= self._grace:
            return None
        if self._since is None:
            self._since = now
        self._grace = grace
        return grace

    def escalation(self, now: float) -> int:
        """Return which of the steps after the grace is due."""
        if self._since is None:
            return WAIT
        over = now - self._since - self._grace
        return sum(over > after for after in _STEPS_AFTER)


def start_sweep(
    plan: Plan, index: int, connect_s: int = timing.SSH_CONNECT_S, is_last: bool = False
) -> subprocess.Popen[bytes]:
    """Start to end what a job has left on a node; return the process. The job's working folder stays for a
    restart unless ``is_last``."""
    keeps = plan["max_restarts"] and not is_last
    command = f"sweep {plan['id']} 0 keep" if keeps else f"sweep {plan['id']}"
    return start_on_node(
        plan, index, command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, connect_s=connect_s
    )


def sweep_nodes(
    plan: Plan, indexes: Iterable[int], silent: Collection[int] = (), is_last: bool = False
) -> dict[int, str]:
    """End what a job has left on these nodes, all at once; return ssh's errors by node not reached. Wait less
    for ``silent`` nodes, where the ranks end by themselves."""
    running = {
        index: start_sweep(
            plan, index, timing.SSH_CONNECT_LOST_S if index in silent else timing.SSH_CONNECT_S, is_last
        )
        for index in indexes
    }
    until = time.monotonic() + timing.NODES_ANSWER_S
    unreached = {}
    for index, process in running.items():
        try:
            _, errors = process.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            unreached[index] = "does not answer ssh"
            continue
        if process.returncode == _NOT_REACHED:
            lines = last_lines(errors, 1)
            unreached[index] = lines[0] if lines else "ssh does not reach it"
    return unreached


def clear_work_dirs(plan: Plan) -> None:
    """Clear the working folders of a job that has ended and could have been restarted, on all its nodes."""
    nodes = range(len(plan["nodes"]))
    for start in nodes[::_AT_ONCE]:
        sweep_nodes(plan, nodes[start : start + _AT_ONCE], is_last=True)
