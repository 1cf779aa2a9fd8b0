"""A launcher that the package does not know: leaders with an address of their own, followers with theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from launch.errors import InputError
from launch.launchers.base import COUNT, JobNode, Launcher, Line, LineStart, Option, RankPlan, Spec


class Toy(Launcher):
    """Starts ranks that know their leader."""

    name = "toy"
    task = "toy"
    example = 'fab launch.toy "train.py" --nodes 0-3'
    summary = "Push the code and run it as a toy."
    options = (COUNT, Option("loud", "whether ranks are loud", False), Option("word", "what they are told"))
    variables = ("TOY_LEADER",)

    def check_options(self, options: Mapping[str, Any]) -> None:
        if options["loud"] and options["word"] is None:
            raise InputError("--loud", None, "is for a --word", "give one, or leave it out")

    def start_line(self, line: Line) -> LineStart:
        started = super().start_line(line)
        word = line.options["word"]
        return replace(started, command=(*started.command, word)) if word else started

    def place(self, spec: Spec, nodes: Sequence[JobNode]) -> list[list[RankPlan]]:
        leader = {"TOY_LEADER": nodes[0].name}
        return [
            [replace(rank, env={**rank.env, **leader}) for rank in here]
            for here in super().place(spec, nodes)
        ]

    def defaults(self, spec: Spec) -> dict[str, str]:
        return {"TOY_RANKS_EACH": str(spec.processes_per_node)}
