"""The part of a job's output that a user selects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import InputError
from launch.nodeset import fold
from launch.numbers import counted
from launch.remote.base.names import instance_id
from launch.remote.base.payloads import LogQuery

__all__ = ["ALL", "Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of output: a line passes when ranks, nodes, age and tail all match."""

    ranks: frozenset[int] | None = None
    names: frozenset[str] = frozenset()
    """Nodes by name; every node where :attr:`ids` is empty too."""
    ids: frozenset[int] = frozenset()
    since: float | None = None
    """Age limit of output in seconds, by the head's clock."""
    tail: int | None = None

    def as_query(self, *, wait: bool) -> str:
        """Return the selection as an argument of :func:`launch.remote.log.follow.follow`."""
        query: LogQuery = {"wait": wait, "since": self.since, "tail": self.tail}
        if self.ranks is not None:
            query["ranks"] = sorted(self.ranks)
        if self.names or self.ids:
            query.update({"nodes": sorted(self.names), "ids": sorted(self.ids)})
        return json.dumps(query)

    def check(self, job: str, nodes: Sequence[str], ranks: int) -> None:
        """Raise :class:`~launch.errors.InputError` for ranks and nodes that the job does not have."""
        strange = [str(rank) for rank in sorted(self.ranks or ()) if rank >= ranks]
        if strange:
            remedy = f"give numbers from 0 to {ranks - 1}" if ranks > 1 else "its only rank is 0"
            raise InputError("--rank", ",".join(strange), f"job {job} has {counted(ranks, 'rank')}", remedy)
        there = map(instance_id, nodes)
        missing = [*sorted(self.names.difference(nodes)), *map(str, sorted(self.ids.difference(there)))]
        if missing:
            problem = f"job {job} does not run there"
            raise InputError("--node", ",".join(missing), problem, f"its nodes are {fold(nodes)}")


ALL = Selection()
"""A filter that lets everything pass."""
