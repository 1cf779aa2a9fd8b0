"""Which of a job's processes runs on which node, and what its number there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import InputError
from launch.job.rank_env import node_environment, rank_environment
from launch.job.spec import JobNode, JobSpec
from launch.launchers.tensorflow import place_tasks, planned_configs
from launch.numbers import counted

__all__ = ["NodePlan", "RankPlan", "place"]


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One process the system starts; with a launcher per node, that launcher."""

    rank: int
    local_rank: int
    env: dict[str, str]
    """What this rank sees that its neighbours do not."""
    task: str = ""
    """The type of its TensorFlow task."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node's part in a job."""

    node: JobNode
    node_rank: int
    reserve: int
    """Slots the job holds there: one per rank, or all when a single process has the node to itself.
    TensorFlow's parameter servers need none."""
    env: dict[str, str]
    ranks: tuple[RankPlan, ...]


def place(spec: JobSpec, nodes: Sequence[JobNode]) -> tuple[NodePlan, ...]:
    """Every node's ranks: numbered node by node, or a TensorFlow job's tasks dealt out in turn.

    Raises :class:`~launch.errors.InputError` for more processes than slots.
    """
    for node in nodes:
        if node.slots < 1:
            raise InputError(
                "slots", node.slots, f"{node.name} takes no processes", "leave that node out of --nodes"
            )
    ranks = _tasks(spec, nodes) if spec.kind == "tensorflow" else _ranks(spec, nodes)
    placed = []
    for node_rank, (node, here) in enumerate(zip(nodes, ranks, strict=True)):
        count = sum(rank.task != "ps" for rank in here)
        reserve = node.slots if count == 1 else count
        env = node_environment(node_rank, node.private_ip)
        placed.append(NodePlan(node, node_rank, reserve, env, tuple(here)))
    return tuple(placed)


def _ranks(spec: JobSpec, nodes: Sequence[JobNode]) -> list[list[RankPlan]]:
    placed = []
    first = 0
    for node in nodes:
        count = _processes_on(spec, node)
        # A launcher's own processes get these from it; were they set, scripts would take it for a rank.
        placed.append(
            [
                RankPlan(
                    first + local,
                    local,
                    {} if spec.per_node else rank_environment(first + local, local, count),
                )
                for local in range(count)
            ]
        )
        first += count
    return placed


def _tasks(spec: JobSpec, nodes: Sequence[JobNode]) -> list[list[RankPlan]]:
    tasks = place_tasks(spec, nodes)
    configs = planned_configs(nodes, tasks)
    return [
        [
            RankPlan(
                task.rank,
                local,
                {**rank_environment(task.rank, local, len(here)), "TF_CONFIG": configs[task.rank]},
                task.type,
            )
            for local, task in enumerate(here)
        ]
        for here in tasks
    ]


def _processes_on(spec: JobSpec, node: JobNode) -> int:
    if spec.per_node:
        return 1
    count = spec.processes_per_node
    if count is None:
        return node.slots
    if count > node.slots:
        raise InputError(
            "processes_per_node",
            count,
            f"{node.name} has {counted(node.slots, 'slot')}",
            f"ask for at most {node.slots}",
        )
    return count
