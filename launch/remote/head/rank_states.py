"""Which ranks of a launch run, have ended, or are no longer counted on."""

from __future__ import annotations

from launch.remote.base.records import PlannedNode

__all__ = ["RankStates"]


class RankStates:
    """The states of all ranks of a plan's nodes; nodes go by their place in the plan."""

    def __init__(self, nodes: list[PlannedNode]) -> None:
        self.names: list[str] = [node["name"] for node in nodes]
        self.node_of: dict[int, int] = {
            given["rank"]: index for index, node in enumerate(nodes) for given in node["ranks"]
        }
        self.started: set[int] = set()
        self.ended: dict[int, int] = {}
        """Exit statuses by rank."""
        self.dispensed: set[int] = set()
        """Ranks of lost nodes that the others go on without."""

    @property
    def running(self) -> list[int]:
        """Ranks that were started and whose end is not known."""
        return sorted(self.started.difference(self.ended, self.dispensed))

    @property
    def all_started(self) -> bool:
        """Whether every expected rank has been started."""
        return len(self.started | self.dispensed) == len(self.node_of)

    @property
    def all_ended(self) -> bool:
        """Whether every expected rank has exited."""
        return len(self.dispensed.union(self.ended)) == len(self.node_of)

    @property
    def expected(self) -> dict[int, str]:
        """By rank the name of its node, without ranks that were dispensed with."""
        return {rank: self.names[node] for rank, node in self.node_of.items() if rank not in self.dispensed}

    @property
    def dispensed_nodes(self) -> list[str]:
        """Names of the lost nodes that the others go on without."""
        return [self.names[index] for index in sorted({self.node_of[rank] for rank in self.dispensed})]

    def ranks_on(self, node: int) -> list[int]:
        """Return the ranks of a node, by local rank."""
        return [rank for rank, index in self.node_of.items() if index == node]

    def unended_on(self, node: int) -> list[int]:
        """Return the ranks of a node whose end is not known."""
        return [rank for rank in self.ranks_on(node) if rank not in self.ended]

    def nodes_covered_by(self, ranks: set[int]) -> set[int]:
        """Return the nodes all of whose ranks are among ``ranks``; at least one each."""
        partly = {self.node_of[rank] for rank in ranks}
        return partly.difference(node for rank, node in self.node_of.items() if rank not in ranks)

    def dispense_with(self, node: int) -> None:
        """Expect no longer the ranks of a node whose end is not known."""
        self.dispensed.update(self.unended_on(node))
