"""Nodes that cannot take part in a launch, or no longer: unfit, lost, or taken by Azure; and what follows.

A job ends with the first node it loses, unless its launcher goes on with fewer, down to ``min_nodes``: then
the ranks of the lost node are dispensed with.
"""

from __future__ import annotations

from typing import NamedTuple

from launch.remote.base import eviction, timing
from launch.remote.base.eviction import Eviction
from launch.remote.base.job_dir import Folder
from launch.remote.base.payloads import EvictionNotice
from launch.remote.base.records import Plan
from launch.remote.head import outcome
from launch.remote.head.outcome import Outcome
from launch.remote.head.rank_states import RankStates
from launch.remote.head.shutdown import Shutdown, Stop
from launch.remote.head.start_barrier import StartBarrier
from launch.remote.log.writer import StreamWriter

__all__ = ["GoOn", "NodeLoss"]

_UNORDERED = "its runner ended its ranks without an order: it got a signal, or mpirun's daemon there is gone"


class GoOn(NamedTuple):
    """Decision: go on without a node. ``grace`` is what its ranks get, None where it is lost already."""

    node: int
    message: str
    grace: float | None = None


class NodeLoss:
    """Decides on nodes, which go by their place in the plan, and writes what happened to the job's events."""

    def __init__(
        self,
        plan: Plan,
        folder: Folder,
        ranks: RankStates,
        barrier: StartBarrier,
        shutdown: Shutdown,
    ) -> None:
        self._plan, self._folder = plan, folder
        self._ranks, self._barrier, self._shutdown = ranks, barrier, shutdown
        self.lost: set[int] = set()
        """Nodes whose runner was lost before it had reported everything, and nodes that were given up."""
        self.silent: set[int] = set()
        self._recorded: set[int] = set()
        self._unordered: dict[int, float] = {}
        """Since when nodes have ranks that their runner ended without an order."""
        self._notices: dict[int, Eviction] = {}
        self._leaving: list[int] = []
        """Nodes whose notice was due."""
        self._evicted: Outcome | None = None

    # -- before the first rank ----------------------------------------------------------------------

    def on_unfit(self, node: int, reasons: list[str], now: float) -> Stop | None:
        """Reject a node that cannot run its ranks; end the launch at once if other ranks run already."""
        if self._barrier.has_opened:
            reason = f"{self._ranks.names[node]}: {'; '.join(reasons)}"
            return Stop(Outcome("FAILED", outcome.LOST_RANK, reason))
        if not self._shutdown.has_begun:
            self._barrier.reject(node, reasons, now)
        return None

    # -- lost nodes ---------------------------------------------------------------------------------

    def on_lost(self, node: int, why: str, now: float) -> Stop | GoOn | None:
        """Decide what follows from the loss of a node's runner before it had reported everything."""
        if node in self.lost and node in self._leaving:
            return None  # it was expected to go
        self.lost.add(node)
        if not self._barrier.has_opened:
            return self.on_unfit(node, [why], now)
        name = self._ranks.names[node]
        if node not in self._recorded:
            self._recorded.add(node)
            self._folder.event("lost-node", node=name, reason=why)
        if self._is_dispensable(node):
            return self._go_on(node, f"{name} is lost: {why}")
        ranks = self._ranks.unended_on(node) or self._ranks.ranks_on(node)
        return Stop(outcome.lost_node(ranks, name, why))

    def on_stopped(self, node: int, now: float) -> None:
        """Note that a runner has ended a rank, which nobody need have ordered."""
        if not self._shutdown.has_begun:
            self._unordered.setdefault(node, now)

    def on_tick(self, now: float) -> Stop | GoOn | None:
        """Decide what follows where a runner ended ranks without an order, once others had their time to
        report the reason: their peers would wait for them for ever."""
        for node, since in self._unordered.items():
            if node not in self.lost and now - since > timing.UNORDERED_END_S and not self._ranks.all_ended:
                return self.on_lost(node, _UNORDERED, now)
        return None

    def find_lost(self, stream: StreamWriter, mpirun_status: int | None) -> Outcome | None:
        """Return the outcome of a launch that ended undecided because of a lost node, None where none was.

        mpirun's output names the node, or its runner ended ranks without an order. A status of 0 is no
        sign of success: a rank may end so on SIGTERM, and Open MPI 5's mpirun after it has lost a daemon.
        """
        gone = self.lost.union(self._leaving)
        unordered = [node for node in self._unordered if node not in gone]
        if mpirun_status is not None and (mpirun_status or unordered):
            name = outcome.blamed_node(stream, self._ranks.names)
            if name is not None:
                how = outcome.format_exit(mpirun_status, 0)
                why = f"mpirun {how} when it lost the connection to its daemon there"
                return self._lost(self._ranks.names.index(name), why)
        if unordered and not mpirun_status:
            return self._lost(unordered[0], _UNORDERED)
        return None

    def _lost(self, node: int, why: str) -> Outcome:
        name = self._ranks.names[node]
        self.lost.add(node)
        self._folder.event("lost-node", node=name, reason=why)
        return outcome.lost_node(self._ranks.unended_on(node) or self._ranks.ranks_on(node), name, why)

    def to_sweep(self, finished: set[int]) -> list[int]:
        """Return the lost nodes on which something of the job may be left: all but ``finished`` ones that
        Azure takes."""
        return sorted(self.lost.difference(finished.intersection(self._leaving)))

    # -- nodes that Azure takes ---------------------------------------------------------------------

    def on_notice(self, node: int, fields: EvictionNotice, now: float) -> None:
        """Keep Azure's notice for a node, or its withdrawal; every runner of the node reports it."""
        if node in self._leaving:
            return
        name = self._ranks.names[node]
        if not fields["type"]:
            if self._notices.pop(node, None) is not None:
                why = "will not be taken by Azure after all"
                self._folder.event("eviction", node=name, reason=why)
            return
        notice = Eviction(name, fields, now)
        if node not in self._notices:
            self._folder.event("eviction", node=name, reason=notice.words)
        self._notices[node] = notice

    def due_nodes(self, now: float) -> list[int]:
        """Return the nodes whose ranks must end now to be gone in time."""
        own = self._plan["grace_s"]
        due = (node for node, notice in self._notices.items() if notice.due(own, now))
        return [node for node in due if node not in self._leaving]

    def on_due(self, node: int, now: float) -> Stop | GoOn | None:
        """Decide what ends because Azure takes a node: its ranks, or the job."""
        self._leaving.append(node)
        notice = self._notices[node]
        grace = notice.grace(self._plan["grace_s"], now)
        if not self._barrier.has_opened:
            return self.on_unfit(node, [notice.words], now)
        if not self._plan["mpirun"] and node != 0 and not self._ranks.unended_on(node):
            return None  # its part is done
        if self._evicted is not None:
            self._evicted.reason = self._evictions()
            return Stop(grace=grace)
        if self._is_dispensable(node):
            self.lost.add(node)
            return self._go_on(node, f"{notice.node} {notice.words}", grace)
        self._evicted = outcome.evicted_node(notice.node, self._evictions([node]))
        return Stop(self._evicted, grace)

    def _evictions(self, nodes: list[int] | None = None) -> str:
        return eviction.format_evictions(self._notices[node] for node in nodes or self._leaving)

    # -- going on without a node --------------------------------------------------------------------

    def _is_dispensable(self, node: int) -> bool:
        """Return whether the job's own launcher, whose processes meet at the head, goes on without a node."""
        fewest = self._plan.get("min_nodes")
        left = len(self._plan["nodes"]) - len(self.lost | {node})
        return fewest is not None and left >= fewest and node != 0 and not self._shutdown.has_begun

    def _go_on(self, node: int, why: str, grace: float | None = None) -> GoOn:
        self._ranks.dispense_with(node)
        left, fewest = len(self._plan["nodes"]) - len(self.lost), self._plan["min_nodes"]
        return GoOn(node, f"{why}; continuing on {left} node{'s' * (left != 1)} (needed: {fewest})", grace)
