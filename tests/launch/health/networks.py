"""A network of stated bandwidths, measured by the minute: what the search is tested against."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from launch.health.measurement import Group, Measurement
from launch.remote.base.names import base36

__all__ = ["Network", "names"]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"node{base36(number)}" for number in range(count))


@dataclass
class Network:
    """Groups are as fast as their slowest node or path, give or take ``noise``; 0 GB/s fails."""

    usual: float = 100.0
    nodes: Mapping[str, float] = field(default_factory=dict)
    """Bandwidth of nodes that are not as fast as the others."""
    paths: Mapping[Group, float] = field(default_factory=dict)
    noise: float = 0.03
    of_pairs: float = 1.0
    """Part of their bandwidth that two nodes reach: over TCP, acknowledgements wait behind data."""
    seed: int = 0
    rounds: list[tuple[Group, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def measure(self, groups: Sequence[Group]) -> list[Measurement]:
        self.rounds.append(tuple(groups))
        together = [node for group in groups for node in group]
        assert len(together) == len(set(together)), "a node is measured twice at once"
        return [self._one(group) for group in groups]

    def _one(self, group: Group) -> Measurement:
        paths = (self.paths.get(pair, self.usual) for pair in combinations(sorted(group), 2))
        gbs = min(*(self.nodes.get(node, self.usual) for node in group), *paths)
        if len(group) == 2:
            gbs *= self.of_pairs
        if gbs == 0:
            return Measurement(group, None, "rank 0 ended with 1")
        return Measurement(group, gbs * self._random.gauss(1, self.noise))
