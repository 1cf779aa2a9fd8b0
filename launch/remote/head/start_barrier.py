"""The barrier before the first rank: which runners are ready and which nodes unfit."""

from __future__ import annotations

from collections.abc import Container, Iterable

from launch.remote.base import names, tf_config, timing
from launch.remote.base.records import Plan
from launch.remote.head.outcome import Outcome, not_started
from launch.remote.log.writer import LAUNCHER, StreamWriter, last_lines

__all__ = ["StartBarrier"]


class StartBarrier:
    """Holds every rank of a plan back until the last runner is ready; ``begun`` is when the launch began.
    Times are those of the monotonic clock."""

    def __init__(self, plan: Plan, begun: float) -> None:
        self._limit = float(plan["start_limit_s"])
        self._nodes = plan["nodes"]
        self._begun = begun
        self._opened: float | None = None
        self._awaited = {given["rank"] for node in self._nodes for given in node["ranks"]}
        self._without_slots = set(self._awaited)
        self._ports: dict[int, int] = {}
        self._rejected: dict[int, list[str]] = {}
        self._first_rejected = 0.0

    # -- what runners report --------------------------------------------------------------------------

    def on_held(self, ranks: Iterable[int]) -> bool:
        """Note that the runner of these ranks holds their slots; return whether it is the last one to."""
        if not self._without_slots:
            return False
        self._without_slots.difference_update(ranks)
        return not self._without_slots

    def on_ready(self, ranks: list[int], ports: list[int]) -> None:
        """Note that the runner of these ranks is ready; ``ports`` are the ranks', in order."""
        self._awaited.difference_update(ranks)
        self._ports.update({ranks[place]: port for place, port in enumerate(ports)})

    def reject(self, index: int, reasons: Iterable[str], now: float) -> None:
        """Note that a node is unfit, or does not answer."""
        if not self._rejected:
            self._first_rejected = now
        known = self._rejected.setdefault(index, [])
        known += [reason for reason in reasons if reason not in known]

    # -- what that amounts to -------------------------------------------------------------------------

    @property
    def has_opened(self) -> bool:
        """Whether the ranks were let start."""
        return self._opened is not None

    @property
    def has_rejected(self) -> bool:
        """Whether any node is known to be unfit."""
        return bool(self._rejected)

    @property
    def is_complete(self) -> bool:
        """Whether every rank's runner is ready and no node unfit."""
        return not (self._rejected or self._awaited)

    def is_hopeless(self, now: float) -> bool:
        """Return whether a node is unfit, and all others have answered or had their time to."""
        if not self._rejected:
            return False
        return not self.pending or now - self._first_rejected > timing.UNFIT_TOGETHER_S

    @property
    def pending(self) -> list[int]:
        """Nodes that are neither ready nor known to be unfit."""
        return [
            index
            for index, node in enumerate(self._nodes)
            if index not in self._rejected and any(given["rank"] in self._awaited for given in node["ranks"])
        ]

    def is_late(self, now: float) -> bool:
        """Return whether the plan's limit has passed since the launch began, or since the barrier opened."""
        return now - (self._begun if self._opened is None else self._opened) > self._limit

    def overdue(self, now: float, at_work: Container[int], started: Container[int]) -> list[int]:
        """Return the nodes that take longer than the plan's limit to be ready or, once the barrier has
        opened, to start their ranks. A node that is ``at_work`` on its copy of the code or the setup line has
        the job's whole time to be ready."""
        if not self.is_late(now):
            return []
        if self._opened is None:
            return [index for index in self.pending if index not in at_work]
        return [
            index
            for index, node in enumerate(self._nodes)
            if any(given["rank"] not in started for given in node["ranks"])
        ]

    def open(self, now: float) -> dict[int, dict[str, str]]:
        """Let the ranks start; return by rank the variables that depend on every node's ports: TF_CONFIG."""
        self._opened = now
        configs = tf_config.tf_configs(
            (given["rank"], given["task"], f"{node['private_ip']}:{self._ports[given['rank']]}")
            for node in self._nodes
            for given in node["ranks"]
            if given["task"]
        )
        return {rank: {"TF_CONFIG": config} for rank, config in configs.items()}

    def outcome(self, stream: StreamWriter) -> Outcome:
        """Return the outcome of a launch with unfit nodes: all in one reason, equal reasons folded."""
        by_reason: dict[str, list[str]] = {}
        for index, reasons in sorted(self._rejected.items()):
            by_reason.setdefault("; ".join(reasons), []).append(self._nodes[index]["name"])
        listed = [f"{names.fold(nodes)}: {reason}" for reason, nodes in by_reason.items()]
        first = min(self._rejected)
        lines = last_lines(stream.tail(LAUNCHER, first))
        return not_started(self._nodes[first]["name"], "; ".join(listed), lines)
