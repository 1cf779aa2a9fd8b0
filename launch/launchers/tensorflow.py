"""TensorFlow: tasks of several types, each with its TF_CONFIG (guide G11)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from launch.job.rank_env import rank_environment
from launch.launchers.base import (
    Count,
    JobNode,
    Launcher,
    Line,
    LineStart,
    Option,
    RankPlan,
    Spec,
    Start,
    wrong,
)
from launch.numbers import MOST, bounded, counted
from launch.remote.base.tf_config import FIRST_PORT, tf_configs

__all__ = ["MOST_SERVERS", "TensorFlow"]

MOST_SERVERS = 1000
"""Parameter servers of one job. They take no slots, and every task gets the address of each of them."""


def _number(of: str, high: int) -> Callable[[str, str], int]:
    remedy = "give 0 or more"
    return functools.partial(bounded, low=0, high=high, problem=f"is not a number of {of}", remedy=remedy)


class TensorFlow(Launcher):
    """Starts the tasks of a TensorFlow cluster."""

    name = "tensorflow"
    task = "tensorflow"
    example = 'fab launch.tensorflow "train.py --epochs 5" --nodes 0-3'
    summary = """Push the code and run it as the tasks of a TensorFlow cluster, each with its TF_CONFIG.

The exit status is the job's. Ctrl-C leaves the job running and prints how to follow and end it.
"""
    options = (
        Option(
            "workers", "number of workers in all (default: one on each node)", "0", _number("workers", MOST)
        ),
        Option(
            "parameter_servers",
            "number of parameter servers in all (default: none)",
            "0",
            _number("parameter servers", MOST_SERVERS),
        ),
        Option("chief", "whether one task is the chief", False),
    )
    file_keys = ("worker_count", "parameter_server_count")
    fields = frozenset({"workers", "parameter_servers", "chief"})
    variables = ("TF_CONFIG",)

    def start(self, count: Count, _command: str | Sequence[str], _source: str | None, /) -> Start:
        """Return one process for each task: their number does not come from a count on each node."""
        return Start(per_node=False, processes=count if isinstance(count, int) else 1)

    def start_line(self, line: Line) -> LineStart:
        """Return what a command line starts, with the tasks that are asked for."""
        started = super().start_line(line)
        given = {**line.options, "workers": line.options["workers"] or None}
        return LineStart(started.start, started.command, fields=given)

    def check(self, spec: Spec) -> None:
        """Raise :class:`~launch.errors.InputError` for tasks that cannot be."""
        if (spec.processes_per_node or 1) > 1:
            problem = "is not for tensorflow jobs"
            raise wrong(spec, "processes_per_node", problem, "set the number of workers")
        if spec.workers is not None and spec.workers < 1:
            raise wrong(spec, "workers", "must be at least 1", "ask for one or more")
        if spec.workers is not None and spec.workers > MOST:
            raise wrong(spec, "workers", f"must be at most {MOST}", "ask for fewer")
        if not 0 <= spec.parameter_servers <= MOST_SERVERS:
            remedy = f"ask for 0 to {MOST_SERVERS}"
            raise wrong(spec, "parameter_servers", "is not a number of tasks", remedy)
        if spec.parameter_servers and spec.workers is None:
            remedy = "set the number of workers too"
            raise wrong(spec, "parameter_servers", "need workers", remedy)

    def place(self, spec: Spec, nodes: Sequence[JobNode]) -> list[list[RankPlan]]:
        """Return every node's tasks: the chief first, then workers, then parameter servers, task i on node
        i mod n; a task's rank is its number over all types.

        Without a count there is one task on each node, the first of them the chief where there is one. Chief
        and workers take a slot each, parameter servers none. Raise :class:`~launch.errors.InputError`.
        """
        count = len(nodes)
        workers = count - spec.chief if spec.workers is None else spec.workers
        wanted = [("chief", int(spec.chief)), ("worker", workers), ("ps", spec.parameter_servers)]
        types = [kind for kind, number in wanted for _ in range(number)]
        if len(types) < count:
            problem = f"makes {counted(len(types), 'task')} for {counted(count, 'node')}"
            raise wrong(spec, "workers", problem, "choose fewer nodes with --nodes")
        placed = [list(range(index, len(types), count)) for index in range(count)]
        for node, ranks in zip(nodes, placed, strict=True):
            needed = sum(types[rank] != "ps" for rank in ranks)
            if needed > node.slots:
                slots = counted(node.slots, "slot")
                problem = f"puts {counted(needed, 'task')} on {node.name}, which has {slots}"
                raise wrong(spec, "workers", problem, "ask for fewer, or choose more nodes")
        configs = tf_configs(  # as they are if the first ports are free on every node
            (rank, types[rank], f"{node.private_ip}:{FIRST_PORT + local}")
            for node, ranks in zip(nodes, placed, strict=True)
            for local, rank in enumerate(ranks)
        )

        def task(rank: int, local: int, count: int) -> RankPlan:
            env = {**rank_environment(rank, local, count), "TF_CONFIG": configs[rank]}
            return RankPlan(rank, local, env, types[rank], takes_slot=types[rank] != "ps")

        return [[task(rank, local, len(ranks)) for local, rank in enumerate(ranks)] for ranks in placed]

    def services(self, spec: Spec) -> tuple[str, ...]:
        """Return parameter servers; with a chief everybody else too: it alone runs the training, and workers
        wait for its orders (``ParameterServerStrategy``)."""
        if not spec.parameter_servers:
            return ()
        return ("worker", "ps") if spec.chief else ("ps",)
