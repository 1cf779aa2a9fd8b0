"""Which TensorFlow task runs where (guide G11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from launch.errors import InputError
from launch.job.spec import JobNode, JobSpec
from launch.numbers import counted
from launch.remote.base.tf_config import FIRST_PORT, tf_configs

__all__ = ["Task", "TaskType", "place_tasks", "planned_configs", "serving"]

TaskType = Literal["chief", "worker", "ps"]


@dataclass(frozen=True, slots=True)
class Task:
    """One process of a TensorFlow cluster; its rank is its number over all types."""

    rank: int
    type: TaskType


def place_tasks(spec: JobSpec, nodes: Sequence[JobNode]) -> list[list[Task]]:
    """Every node's tasks: the chief first, then workers, then parameter servers, task i on node i mod n.

    Without a count there is one task on each node, the first of them the chief where there is one. Chief and
    workers take a slot each, parameter servers none. Raises :class:`~launch.errors.InputError`.
    """
    count = len(nodes)
    workers = count - spec.chief if spec.workers is None else spec.workers
    kinds: list[tuple[TaskType, int]] = [
        ("chief", int(spec.chief)),
        ("worker", workers),
        ("ps", spec.parameter_servers),
    ]
    types = [kind for kind, wanted in kinds for _ in range(wanted)]
    if len(types) < count:
        raise InputError(
            "workers",
            spec.workers,
            f"makes {counted(len(types), 'task')} for {counted(count, 'node')}",
            "choose fewer nodes with --nodes",
        )
    placed: list[list[Task]] = [[] for _ in nodes]
    for rank, kind in enumerate(types):
        placed[rank % count].append(Task(rank, kind))
    for node, tasks in zip(nodes, placed, strict=True):
        needed = sum(task.type != "ps" for task in tasks)
        if needed > node.slots:
            raise InputError(
                "workers",
                spec.workers,
                f"puts {counted(needed, 'task')} on {node.name}, which has {counted(node.slots, 'slot')}",
                "ask for fewer, or choose more nodes",
            )
    return placed


def serving(spec: JobSpec) -> tuple[TaskType, ...]:
    """Types of tasks that serve until they are stopped: the job is done when all others are.

    Beside parameter servers, with a chief that is everybody else: it alone runs the training, workers wait
    for its orders (``ParameterServerStrategy``).
    """
    if not spec.parameter_servers:
        return ()
    return ("worker", "ps") if spec.chief else ("ps",)


def planned_configs(nodes: Sequence[JobNode], placed: Sequence[Sequence[Task]]) -> dict[int, str]:
    """TF_CONFIG by rank as it is if the first ports are free on every node."""
    return tf_configs(
        (task.rank, task.type, f"{node.private_ip}:{FIRST_PORT + place}")
        for node, tasks in zip(nodes, placed, strict=True)
        for place, task in enumerate(tasks)
    )
