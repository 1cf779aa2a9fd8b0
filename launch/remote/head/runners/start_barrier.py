"""Before the first rank: which runners are ready, which nodes are unfit, and what is known only then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from launch.remote.base import names, tf_config
from launch.remote.head import outcome as verdict
from launch.remote.log.writer import LAUNCHER, StreamWriter, last_lines

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from launch.remote.base.records import Plan
    from launch.remote.head.outcome import Outcome

__all__ = ["Muster"]

_FOLD_WITHIN = 12.0
"""Seconds after the first unfit node in which others may join it in the one error: an ssh client gives up
on a silent node after 10 s."""


class Muster:
    """Counts the runners of a plan in; no rank starts before the last one is ready."""

    def __init__(self, plan: Plan) -> None:
        self.went: float | None = None
        """When the ranks were told to start, by the monotonic clock."""
        self._plan = plan
        self._nodes = plan["nodes"]
        self._awaited = {given["rank"] for node in self._nodes for given in node["ranks"]}
        self._without_slots = set(self._awaited)
        self._ports: dict[int, int] = {}
        self._unfit: dict[int, list[str]] = {}
        self._first_unfit = 0.0

    def holds(self, ranks: Iterable[int]) -> bool:
        """The runner of these ranks holds their slots; whether it is the last one to."""
        if not self._without_slots:
            return False
        self._without_slots.difference_update(ranks)
        return not self._without_slots

    def ready(self, ranks: list[int], ports: list[int]) -> None:
        """A runner of these ranks is ready; ``ports`` are theirs, in order."""
        self._awaited.difference_update(ranks)
        self._ports.update({ranks[place]: port for place, port in enumerate(ports)})

    def unfit(self, index: int, reasons: Iterable[str]) -> None:
        """A node cannot take part, or does not answer."""
        if not self._unfit:
            self._first_unfit = time.monotonic()
        known = self._unfit.setdefault(index, [])
        known += [reason for reason in reasons if reason not in known]

    @property
    def is_known(self) -> bool:
        """Whether any node is known to be unfit."""
        return bool(self._unfit)

    @property
    def is_complete(self) -> bool:
        """Whether every rank's runner is ready, and all may start."""
        return not (self._unfit or self._awaited)

    @property
    def is_hopeless(self) -> bool:
        """Whether a node is unfit, and all others have answered or had their time to."""
        if not self._unfit:
            return False
        return not self.pending or time.monotonic() - self._first_unfit > _FOLD_WITHIN

    @property
    def pending(self) -> list[int]:
        """Nodes that have neither said that they are ready nor that they are not."""
        return [
            index
            for index, node in enumerate(self._nodes)
            if index not in self._unfit and any(given["rank"] in self._awaited for given in node["ranks"])
        ]

    def overdue(
        self, now: float, begun: float, at_work: Container[int | None], started: Container[int]
    ) -> list[int]:
        """Nodes that take longer than the plan's limit to be ready since ``begun``, or to start their ranks
        since they were told; a node that is ``at_work`` on its copy of the code or the setup line
        has the job's whole time."""
        if not self.is_late(now, begun):
            return []
        if self.went is None:
            return [index for index in self.pending if index not in at_work]
        return [
            index
            for index, node in enumerate(self._nodes)
            if any(given["rank"] not in started for given in node["ranks"])
        ]

    def is_late(self, now: float, begun: float) -> bool:
        """Whether the plan's limit has passed since ``begun``, or since the ranks were to start."""
        return now - (begun if self.went is None else self.went) > float(self._plan["start_limit_s"])

    def late(self) -> dict[int, dict[str, str]]:
        """By rank the variables that are settled now that every node has told its ports: TF_CONFIG."""
        configs = tf_config.tf_configs(
            (given["rank"], given["task"], f"{node['private_ip']}:{self._ports[given['rank']]}")
            for node in self._nodes
            for given in node["ranks"]
            if given["task"]
        )
        return {rank: {"TF_CONFIG": config} for rank, config in configs.items()}

    def outcome(self, stream: StreamWriter) -> Outcome:
        """Every unfit node in one reason, those with the same reason folded."""
        by_reason: dict[str, list[str]] = {}
        for index, reasons in sorted(self._unfit.items()):
            by_reason.setdefault("; ".join(reasons), []).append(self._nodes[index]["name"])
        told = [f"{names.fold(where)}: {reason}" for reason, where in by_reason.items()]
        first = min(self._unfit)
        words = last_lines(stream.tail(LAUNCHER, first))
        return verdict.not_started(self._nodes[first]["name"], "; ".join(told), words)
