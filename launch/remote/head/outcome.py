"""How a job ended, in the words the user reads."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from launch.remote.log.writer import LAUNCHER, StreamWriter, last_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from launch.remote.base.records import Failure, StateName

__all__ = [
    "CANCELLED",
    "LOST_RANK",
    "TIMED_OUT",
    "Outcome",
    "blamed_node",
    "judge",
    "lost_node",
    "misplaced_rank",
    "not_started",
    "rank_failed",
    "signal_name",
    "taken_node",
    "timed_out",
    "way_of_ending",
]

LOST_RANK = 255
"""The exit status of a rank of which nobody knows how it ended, as ssh gives it."""
TIMED_OUT = 124
"""As timeout(1) gives it."""
CANCELLED = 130
"""As a shell gives it after Ctrl-C."""
_SIGNALLED = 128
_SHOWN = 8
"""Ranks that one line names."""
_ABORTED = re.compile(rb"Abort\(\d+\) on node \d+ \(rank ")
"""What MPICH and Intel MPI write when a rank calls MPI_Abort, or the library does on an error."""


_LOST_TOUCH = (
    re.compile(r"Remote daemon: .* on node (\S+)"),
    re.compile(r"connection to proxy \d+ at host (\S+) failed"),
    re.compile(r"^(?:Connection to|Timeout, server) (\S+?) (?:closed|not responding)"),
)
"""What Open MPI, hydra and the ssh below them write when a node, its daemon or the way there is gone."""


class Outcome:
    """How a job ended; ``failure`` names the first failing rank, its node and its last lines.

    ``ran`` says whether any rank of it ever did, ``was_timed_out`` whether its time was over.
    """

    def __init__(
        self, state: StateName, exit_status: int, reason: str, failure: Failure | None = None
    ) -> None:
        self.state, self.exit_status, self.reason, self.failure = state, exit_status, reason, failure
        self.ran = self.was_timed_out = False


def _failed(status: int, reason: str, rank: int | None, node: str | None, words: list[str]) -> Outcome:
    failure: Failure = {"rank": rank, "node": node, "status": status, "last_lines": words}
    return Outcome("FAILED", status, reason, failure)


def signal_name(number: int) -> str:
    """A signal for people.

    >>> signal_name(9), signal_name(99)
    ('signal 9 (SIGKILL)', 'signal 99')
    """
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def way_of_ending(status: int, number: int) -> str:
    """How a process ended, for people; ``number`` is the signal's that ended it, 0 without one.

    >>> way_of_ending(137, 9), way_of_ending(3, 0)
    ('was ended by signal 9 (SIGKILL)', 'ended with exit status 3')
    >>> way_of_ending(137, 0)
    'ended with exit status 137, as a shell does after signal 9 (SIGKILL)'
    """
    if number:
        return f"was ended by {signal_name(number)}"
    words = f"ended with exit status {status}"
    if _SIGNALLED < status < _SIGNALLED + signal.NSIG:
        words += f", as a shell does after {signal_name(status - _SIGNALLED)}"
    return words


def rank_failed(stream: StreamWriter, rank: int, index: int, name: str, status: int, number: int) -> Outcome:
    """A rank ended badly by itself: its status is the job's; ``number`` is the signal's, 0 without one."""
    what = way_of_ending(status, number)
    words = last_lines(stream.tail(rank, index))
    return _failed(status, f"rank {rank} on {name} {what}", rank, name, words)


def not_started(node: str, reason: str, words: list[str]) -> Outcome:
    """Some nodes cannot run the job, so no rank was started on any; ``node`` is the first of them."""
    return _failed(LOST_RANK, f"no rank was started: {reason}", None, node, words)


def lost_node(ranks: list[int], name: str, why: str) -> Outcome:
    """A runner fell silent or went away before the ends of these ranks were known: none of them failed."""
    numbers = ", ".join(map(str, ranks))
    which = f" (rank{'s' * (len(ranks) > 1)} {numbers})" if ranks else ""
    return _failed(LOST_RANK, f"{name}{which} is lost: {why}", None, name, [why])


def taken_node(name: str, why: str) -> Outcome:
    """Azure takes a node: its ranks and all others end before, none of them failed. ``why`` names the node,
    when it goes and for what."""
    return _failed(LOST_RANK, why, None, name, [why])


def blamed_node(stream: StreamWriter, names: Collection[str]) -> str | None:
    """The first node of these that mpirun or its ssh has lost touch with by its own words."""
    said = b"".join(tail for (rank, _), tail in stream.tails.items() if rank == LAUNCHER)
    text = [line.decode("utf-8", "replace") for line in said.splitlines()]
    found = (match[1] for pattern in _LOST_TOUCH for match in map(pattern.search, text) if match)
    return next((name for name in found if name in names), None)


def timed_out(
    limit: float, stream: StreamWriter | None = None, running: Mapping[int, tuple[int, str]] | None = None
) -> Outcome:
    """The job's time of ``limit`` seconds is over. ``running`` are the ranks, each with its node's index and
    name, that went on when others had ended."""
    reason = f"its time limit of {limit:g} s was over"
    if not running or stream is None:
        outcome = Outcome("FAILED", TIMED_OUT, reason)
    else:
        told = [f"rank {rank} on {name}" for rank, (_, name) in sorted(running.items())]
        more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        rank, (index, name) = min(running.items())
        words = last_lines(stream.tail(rank, index))
        reason += f"; still running: {', '.join(told[:_SHOWN])}{more}"
        outcome = _failed(TIMED_OUT, reason, rank, name, words)
    outcome.was_timed_out = True
    return outcome


def misplaced_rank(rank: int, where: str, local_there: int, planned: str, local: int) -> Outcome:
    """mpirun numbered ranks otherwise than the plan: everything that was told to ranks would be wrong."""
    reason = f"mpirun put rank {rank} on {where} as its local rank {local_there}, "
    reason += f"the plan has it on {planned} as local rank {local}"
    return _failed(LOST_RANK, reason, rank, where, [])


def judge(
    stream: StreamWriter,
    ranks: Mapping[int, str],
    ended: Mapping[int, int],
    mpirun_status: int | None,
    mpirun_signal: int = 0,
) -> Outcome:
    """The outcome when no rank failed by itself: good only if every rank ended with 0, and mpirun too.

    ``ranks`` says which node each rank is on, ``mpirun_signal`` which signal ended mpirun, if one did. After
    MPI_Abort all ranks were stopped, and the status it was given is mpirun's; under hydra the rank which
    called it does not even end, but has said so.
    """
    if mpirun_status:
        for (rank, _), tail in stream.tails.items():
            if rank in ranks and _ABORTED.search(tail):
                reason = f"rank {rank} on {ranks[rank]} called MPI_Abort: exit status {mpirun_status}"
                return _failed(mpirun_status, reason, rank, ranks[rank], last_lines(tail))
    worst = next((status for status in ended.values() if status), 0)
    missing = [rank for rank in ranks if rank not in ended]
    if not (mpirun_status or worst or missing):
        return Outcome("SUCCEEDED", 0, "")
    reason = "" if mpirun_status is None else f"mpirun {way_of_ending(mpirun_status, mpirun_signal)}"
    if missing:
        reason += " and " if reason else ""
        where = ", ".join(dict.fromkeys(ranks[rank] for rank in missing))
        reason += f"{len(missing)} of {len(ranks)} ranks never reported their end: {where}"
    words = last_lines(b"".join(tail for (rank, _), tail in stream.tails.items() if rank == LAUNCHER))
    return _failed(mpirun_status or worst or LOST_RANK, reason, None, None, words)
