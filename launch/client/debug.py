"""What the ranks of a running job do, as the job's supervisor finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch.client.rpc import ask
from launch.host import Host
from launch.remote.base import timing
from launch.remote.debug import debug_records
from launch.remote.debug.debug_records import DebugFacts, VerdictKind
from launch.remote.hangs.stack_folding import fold_stacks, ranks_of

__all__ = ["DebugReport", "RankState", "StackFold", "debug_job"]


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank in short."""

    rank: int
    node: str
    pid: int
    """Of its first process with a Python stack, else of its first; 0 without one."""
    state: str
    """As in /proc/PID/stat."""
    kernel_function: str
    cpu_ms: int
    """Processor time between the first look and the last."""
    silent_s: int
    """Seconds since its last output; -1 where that is not known."""


@dataclass(frozen=True, slots=True)
class StackFold:
    """Ranks whose main threads have the same stack."""

    ranks: tuple[int, ...]
    frames: tuple[tuple[str, str, int], ...]
    """Function, file and line, the innermost first; none where there is no stack."""
    why: str
    """Why there is no stack; empty with one."""


@dataclass(frozen=True, slots=True)
class DebugReport:
    """A job's ranks, and what keeps them waiting."""

    job: str
    seconds: float
    """From the request to the last node's report."""
    kind: VerdictKind
    verdict: str
    ranks_at_fault: tuple[int, ...]
    nodes_at_fault: tuple[str, ...]
    notes: tuple[str, ...]
    folds: tuple[StackFold, ...]
    """Each different stack, that of the most ranks first."""
    ranks: Mapping[int, RankState]
    facts: DebugFacts
    """All that the nodes reported."""


def debug_job(job: str, head: Host, *, remote: str, py_spy: str) -> DebugReport:
    """Return what a job's ranks do; of a job that was ended because it hung, what they did before.

    ``py_spy`` is the path, below the nodes' home folder, of the program that reads stacks; empty for the
    nodes' own. Raise :class:`~launch.errors.InputError` for a job that does not run, and those of
    :func:`~launch.client.rpc.ask`.
    """
    limit = timing.DEBUG_STEP_S + timing.STEP_S
    words = ["debug", job, *([py_spy] if py_spy else [])]
    answer = ask(debug_records.DebugAnswer, head, remote, *words, timeout=limit, job=job)
    verdict, facts = answer["verdict"], answer["facts"]
    return DebugReport(
        job=job,
        seconds=answer["seconds"],
        kind=verdict["kind"],
        verdict=verdict["text"],
        ranks_at_fault=tuple(verdict["ranks"]),
        nodes_at_fault=tuple(verdict["nodes"]),
        notes=tuple(verdict["notes"]),
        folds=tuple(StackFold(*fold) for fold in fold_stacks(facts)),
        ranks=_rank_states(facts),
        facts=facts,
    )


def _rank_states(facts: DebugFacts) -> dict[int, RankState]:
    from launch.remote.hangs.places import main_process

    found = {}
    for number, (node, rank) in sorted(ranks_of(facts).items()):
        process = main_process(rank)
        silent = -1 if facts["per_node"] else facts["silent_s"].get(str(number), -1)
        if process is None:
            found[number] = RankState(number, node, 0, "gone", "", 0, silent)
        else:
            found[number] = RankState(
                number,
                node,
                process["pid"],
                process["state"],
                process["kernel_function"],
                process["cpu_ms"],
                silent,
            )
    return found
