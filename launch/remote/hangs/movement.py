"""What keeps a verdict from being proof that a job hangs: above all, that a silent rank works.

A rank that waits in a collective may spin, which takes processor time and keeps a GPU busy: whether such
ranks move is judged by :mod:`launch.remote.hangs.verdict` alone.
"""

from __future__ import annotations

from launch.remote.hangs.looked_ranks import rank_of, shown
from launch.remote.hangs.places import NOWHERE
from launch.remote.hangs.stack_folding import ranks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.debug.debug_records import DebugFacts, Verdict
    from launch.remote.hangs.looked_ranks import Rank

__all__ = ["computes", "doubt", "transfers"]

_CPU_MS = 100
"""Processor time of a rank, during a look of two seconds, that is more than idle threads take."""
_IO = 128 << 10
_RECEIVED = 1 << 20
"""Bytes that are more than monitors of the system read, and than torch's store receives."""
_MEMORY_USE = 5
"""Percentage from which a GPU's memory is in use: NCCL's kernels that wait keep the GPU busy, and its memory
all but idle."""


def computes(rank: Rank) -> bool:
    """Return whether a rank's processes use processor time."""
    return sum(one["cpu_ms"] + one["ended_ms"] for one in rank.processes) >= _CPU_MS


def transfers(rank: Rank) -> bool:
    """Return whether a rank's processes read, write or receive data."""
    return (
        sum(one["io"] for one in rank.processes) >= _IO
        or sum(one["received"] for one in rank.processes) >= _RECEIVED
    )


def doubt(facts: DebugFacts, verdict: Verdict) -> str:
    """Return why the verdict does not prove that the job hangs; empty where it does."""
    if verdict["kind"] == "unknown":
        return "nothing shows that it hangs"
    silent = sorted(set(verdict["nodes"]) & facts["unanswered"].keys() - facts["unheard_s"].keys())
    if silent:
        return f"{silent[0]} has not reported: {facts['unanswered'][silent[0]]}"
    found = {number: rank_of(number, node, its) for number, (node, its) in ranks_of(facts).items()}
    at_fault = [found[number] for number in verdict["ranks"] if number in found]
    elsewhere = [rank for rank in found.values() if rank.place != NOWHERE]
    ranks = [rank for rank in at_fault or elsewhere if not rank.place.operation]
    for moves, what in ((computes, "processor time"), (transfers, "data: files or connections")):
        its = [rank for rank in ranks if moves(rank)]
        if its:
            return f"{shown(its)} {'uses' if len(its) == 1 else 'use'} {what}"
    nodes = {rank.node for rank in ranks}
    for node in sorted(nodes):
        if any(gpu["memory_use"] >= _MEMORY_USE for part in facts["nodes"][node] for gpu in part["gpus"]):
            return f"a GPU of {node} computes"
    return ""
