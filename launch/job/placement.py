"""Which of a job's processes runs on which node, and what its number there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import InputError
from launch.job.rank_env import node_environment
from launch.job.spec import JobNode, JobSpec
from launch.launchers.base import RankPlan
from launch.launchers.registry import launcher_of

__all__ = ["NodePlan", "place"]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node's part in a job."""

    node: JobNode
    node_rank: int
    reserve: int
    """Slots the job holds there: one for each rank that takes one, or all when one process has the node to
    itself, and when the nodes' user is granted the identity: no other job's ranks run there then."""
    env: dict[str, str]
    ranks: tuple[RankPlan, ...]


def place(spec: JobSpec, nodes: Sequence[JobNode]) -> tuple[NodePlan, ...]:
    """Return every node's ranks, as the launcher places them.

    Raise :class:`~launch.errors.InputError` for more processes than slots.
    """
    for node in nodes:
        if node.slots < 1:
            problem, remedy = f"{node.name} takes no processes", "leave that node out of --nodes"
            raise InputError("slots", node.slots, problem, remedy)
    ranks = launcher_of(spec.kind).place(spec, nodes)
    placed = []
    for node_rank, (node, here) in enumerate(zip(nodes, ranks, strict=True)):
        count = sum(rank.takes_slot for rank in here)
        reserve = node.slots if count == 1 or spec.identity else count
        env = node_environment(node_rank, node.private_ip)
        placed.append(NodePlan(node, node_rank, reserve, env, tuple(here)))
    return tuple(placed)
