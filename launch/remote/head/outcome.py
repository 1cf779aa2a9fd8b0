"""How a launch ended, as the user reads it, and which rank failed first."""

from __future__ import annotations

import copy
import re
import signal
from collections.abc import Collection, Mapping

from launch.remote.base import timing
from launch.remote.base.names import fold
from launch.remote.base.records import Failure, StateName
from launch.remote.log.writer import LAUNCHER, StreamWriter, last_lines
from launch.remote.mpi.registry import MPIS

__all__ = [
    "CANCELLED",
    "LOST_RANK",
    "NOT_FOUND",
    "NOT_UPLOADED",
    "TIMED_OUT",
    "Failures",
    "Outcome",
    "blamed_node",
    "changed_networks",
    "evicted_node",
    "format_exit",
    "judge",
    "lost_node",
    "misplaced_rank",
    "not_started",
    "rank_failed",
    "signal_name",
    "timed_out",
    "unfinished",
    "without_outputs",
]

LOST_RANK = 255
"""Exit status of a rank whose end is not known, as ssh gives it."""
NOT_FOUND = 127
"""Exit status where the head has no launcher, as a shell gives it."""
NOT_UPLOADED = 74
"""Exit status where only outputs are missing in storage: EX_IOERR of sysexits.h."""
TIMED_OUT = 124
"""Exit status, as timeout(1) gives it."""
CANCELLED = 130
"""Exit status, as a shell gives it after Ctrl-C."""
_SIGNALLED = 128
_SHOWN = 8
_SSH_LOST = re.compile(r"^(?:Connection to|Timeout, server) (\S+?) (?:closed|not responding)")
"""What the ssh below mpirun writes when the way to a node is gone."""


class Outcome:
    """How a launch ended; ``failure`` is the first, ``ran`` whether any rank was started, ``was_timed_out``
    whether the job's time was over, ``is_unproven`` whether what had proven InfiniBand has changed."""

    def __init__(
        self, state: StateName, exit_status: int, reason: str, failure: Failure | None = None
    ) -> None:
        self.state, self.exit_status, self.reason, self.failure = state, exit_status, reason, failure
        self.ran = self.was_timed_out = self.is_unproven = False


def without_outputs(outcome: Outcome) -> Outcome:
    """Return how a job has ended whose outputs are not all in storage: any other failure stays.

    >>> found = without_outputs(Outcome("SUCCEEDED", 0, "")), without_outputs(Outcome("FAILED", 3, ""))
    >>> [(one.state, one.exit_status) for one in found]
    [('INCOMPLETE', 74), ('FAILED', 3)]
    """
    if outcome.state != "SUCCEEDED":
        return outcome
    found = copy.copy(outcome)
    found.state, found.exit_status = "INCOMPLETE", NOT_UPLOADED
    return found


def _failed(status: int, reason: str, rank: int | None, node: str | None, words: list[str]) -> Outcome:
    failure: Failure = {"rank": rank, "node": node, "status": status, "last_lines": words}
    return Outcome("FAILED", status, reason, failure)


def signal_name(number: int) -> str:
    """Return a signal's number and name.

    >>> signal_name(9), signal_name(99)
    ('signal 9 (SIGKILL)', 'signal 99')
    """
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def format_exit(status: int, number: int) -> str:
    """Return how a process ended, as a verb phrase; ``number`` is the signal that ended it, 0 without one.

    >>> format_exit(137, 9), format_exit(3, 0)
    ('was ended by signal 9 (SIGKILL)', 'ended with exit status 3')
    >>> format_exit(137, 0)
    'ended with exit status 137, as a shell does after signal 9 (SIGKILL)'
    """
    if number:
        return f"was ended by {signal_name(number)}"
    words = f"ended with exit status {status}"
    if _SIGNALLED < status < _SIGNALLED + signal.NSIG:
        words += f", as a shell does after {signal_name(status - _SIGNALLED)}"
    return words


def rank_failed(stream: StreamWriter, rank: int, index: int, name: str, status: int, number: int) -> Outcome:
    """Return the outcome of a rank that failed by itself: the rank's status is the job's. ``number`` is the
    signal that ended it, 0 without one."""
    what = format_exit(status, number)
    words = last_lines(stream.tail(rank, index))
    return _failed(status, f"rank {rank} on {name} {what}", rank, name, words)


def not_started(node: str, reason: str, words: list[str]) -> Outcome:
    """Return the outcome where unfit nodes kept every rank from starting; ``node`` is the first."""
    return _failed(LOST_RANK, f"no rank was started: {reason}", None, node, words)


def changed_networks(nodes: list[str]) -> Outcome:
    """Return the outcome where a proof of InfiniBand does not hold any more."""
    reason = (
        f"{fold(nodes)}: what decides which network is used (variables of NCCL, UCX or MPI of a login, "
        "their settings files, mpirun, PATH, the boot) is not as it was when InfiniBand was proven"
    )
    found = not_started(nodes[0], reason, [])
    found.is_unproven = True
    return found


def lost_node(ranks: list[int], name: str, why: str) -> Outcome:
    """Return the outcome where a node was lost before the ends of these ranks were known: no rank failed."""
    numbers = ", ".join(map(str, ranks))
    which = f" (rank{'s' * (len(ranks) > 1)} {numbers})" if ranks else ""
    return _failed(LOST_RANK, f"{name}{which} is lost: {why}", None, name, [why])


def evicted_node(name: str, why: str) -> Outcome:
    """Return the outcome where Azure takes a node and all ranks end before: no rank failed. ``why`` has the
    node, the time and the kind of the event."""
    return _failed(LOST_RANK, why, None, name, [why])


def blamed_node(stream: StreamWriter, names: Collection[str]) -> str | None:
    """Return the first of these nodes to which mpirun or its ssh reports a lost connection, None without."""
    output = b"".join(tail for (rank, _), tail in stream.tails.items() if rank == LAUNCHER)
    text = [line.decode("utf-8", "replace") for line in output.splitlines()]
    patterns = [*(pattern for mpi in MPIS.values() for pattern in mpi.node_lost), _SSH_LOST]
    found = (match[1] for pattern in patterns for match in map(pattern.search, text) if match)
    return next((name for name in found if name in names), None)


def timed_out(
    limit: float, stream: StreamWriter | None = None, running: Mapping[int, tuple[int, str]] | None = None
) -> Outcome:
    """Return the outcome where the job's time of ``limit`` seconds is over. ``running`` has the ranks that
    still ran after others had ended, each with its node's index and name."""
    outcome = unfinished(f"its time limit of {limit:g} s was reached", stream, running)
    outcome.was_timed_out = True
    return outcome


def unfinished(
    why: str, stream: StreamWriter | None, running: Mapping[int, tuple[int, str]] | None
) -> Outcome:
    """Return the outcome of a launch that was ended because of its time; ``running`` has ranks as in
    :func:`timed_out`."""
    if not running or stream is None:
        return Outcome("FAILED", TIMED_OUT, why)
    listed = [f"rank {rank} on {name}" for rank, (_, name) in sorted(running.items())]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    rank, (index, name) = min(running.items())
    words = last_lines(stream.tail(rank, index))
    return _failed(TIMED_OUT, f"{why}; still running: {', '.join(listed[:_SHOWN])}{more}", rank, name, words)


def misplaced_rank(rank: int, where: str, local_there: int, planned: str, local: int) -> Outcome:
    """Return the outcome where mpirun numbers ranks unlike the plan: their variables would be wrong."""
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
    """Return the outcome where no rank failed by itself: success only if every rank and mpirun ended with 0.

    ``ranks`` has each rank's node, ``mpirun_signal`` is the signal that ended mpirun, 0 without one. After
    MPI_Abort all ranks were stopped, and mpirun's status is the one that MPI_Abort was given; under hydra the
    rank that called it has no end of its own, but has printed a message.
    """
    if mpirun_status:
        for (rank, _), tail in stream.tails.items():
            if rank in ranks and any(mpi.abort.search(tail) for mpi in MPIS.values() if mpi.abort):
                reason = f"rank {rank} on {ranks[rank]} called MPI_Abort: exit status {mpirun_status}"
                return _failed(mpirun_status, reason, rank, ranks[rank], last_lines(tail))
    worst = next((status for status in ended.values() if status), 0)
    missing = [rank for rank in ranks if rank not in ended]
    if not (mpirun_status or worst or missing):
        return Outcome("SUCCEEDED", 0, "")
    reason = "" if mpirun_status is None else f"mpirun {format_exit(mpirun_status, mpirun_signal)}"
    if missing:
        reason += " and " if reason else ""
        where = ", ".join(dict.fromkeys(ranks[rank] for rank in missing))
        reason += f"{len(missing)} of {len(ranks)} ranks never reported their end: {where}"
    words = last_lines(b"".join(tail for (rank, _), tail in stream.tails.items() if rank == LAUNCHER))
    return _failed(mpirun_status or worst or LOST_RANK, reason, None, None, words)


class Failures:
    """Failed ranks, by the time at which their runners saw them end.

    Peers notice within milliseconds that a rank is gone, and their MPI ends them as well: the order of the
    reports means little, above all when several are read together. A rank's connections close before its
    runner can see its end, so that a peer may even end earlier: ranks that ended as a peer does come last.
    """

    def __init__(self) -> None:
        self._known: list[tuple[bool, int, Outcome]] = []
        self._since = 0.0

    def add(self, ended_us: int, outcome: Outcome, output: bytes, now: float) -> None:
        """Add a failed rank, its ``outcome``, the launch's if no rank failed earlier, and last ``output``."""
        if not self._known:
            self._since = now
        ended_as_peer = any(mpi.is_peer_loss(outcome.exit_status, output) for mpi in MPIS.values())
        self._known.append((ended_as_peer, ended_us, outcome))

    @property
    def first(self) -> Outcome | None:
        """The outcome of the earliest failure that is known."""
        return min(self._known, key=lambda one: one[:2])[2] if self._known else None

    def settled(self, now: float) -> Outcome | None:
        """Return :attr:`first` once an earlier failure has had its time to be reported."""
        return self.first if self._known and now - self._since > timing.EARLIER_FAILURE_S else None
