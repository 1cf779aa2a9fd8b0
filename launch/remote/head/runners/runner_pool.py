"""The runners of one launch: their channels, the nodes and ranks behind them, and how these have fared."""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING, Any

from launch.remote.base import frames
from launch.remote.head.runners import ssh_start
from launch.remote.head.runners.runner_spec import runner_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.base import job_dir
    from launch.remote.base.records import Plan, PlannedNode
    from launch.remote.head.queue import Turn
    from launch.remote.head.runners.channel import Link
    from launch.remote.head.runners.mpirun import Mpirun
    from launch.remote.log.writer import StreamWriter

__all__ = ["Crew", "Order"]

_AT_ONCE = 48
"""ssh connections in the making at a time: more only make each other wait for the head's processor."""
_CLOSE_WITHIN = 4.0
"""Seconds that an ssh client gets to end by itself."""


class Order:
    """What is to be launched: a job's plan with the slots and the port of its turn.

    ``restarts`` says how often it was launched before; ``until``, by the monotonic clock, is the end of the
    job's time, None when it has no limit.
    """

    def __init__(
        self,
        folder: job_dir.Folder,
        plan: Plan,
        turn: Turn,
        stream: StreamWriter,
        restarts: int = 0,
        until: float | None = None,
    ) -> None:
        self.folder, self.plan, self.turn, self.stream = folder, plan, turn, stream
        self.restarts, self.until = restarts, until


class Crew:
    """Starts the runners over ssh, takes in those that mpirun starts, and speaks to all of them."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.hear: Callable[[Link], None] = self.drop
        """Called with a link whenever something came over it."""
        self.nodes: list[PlannedNode] = order.plan["nodes"]
        self.names: list[str] = [node["name"] for node in self.nodes]
        self.node_of: dict[int, int] = {
            given["rank"]: i for i, node in enumerate(self.nodes) for given in node["ranks"]
        }
        self.selector = selectors.DefaultSelector()
        self.links: list[Link] = []
        self.to_start: list[int] = []
        """Nodes whose runner has not been started yet."""
        self.mpirun: Mpirun | None = None
        self.started: set[int] = set()
        self.ended: dict[int, int] = {}
        """Exit statuses by rank."""
        self.lost: set[int] = set()
        """Nodes whose runner went away or fell silent before it had told everything."""
        self.silent: set[int] = set()
        self.missed: set[int] = set()
        """Ranks of lost nodes that the others go on without."""

    @property
    def open_links(self) -> list[Link]:
        """Those that may still tell something."""
        return [link for link in self.links if link.open]

    @property
    def is_at_work(self) -> bool:
        """Whether any runner still has something to tell."""
        return any(not link.done for link in self.open_links)

    @property
    def running(self) -> list[int]:
        """Ranks that were started and of which no end is known."""
        return sorted(self.started.difference(self.ended, self.missed))

    @property
    def all_started(self) -> bool:
        """Whether every rank that is still counted on has been started."""
        return len(self.started | self.missed) == len(self.node_of)

    @property
    def all_ended(self) -> bool:
        """Likewise, has ended."""
        return len(self.missed.union(self.ended)) == len(self.node_of)

    @property
    def greeted_nodes(self) -> set[int]:
        """Nodes on which every rank has a runner that has introduced itself."""
        ranks = {rank for link in self.links if link.greeted for rank in link.ranks}
        return {self.node_of[rank] for rank in ranks}.difference(
            index for rank, index in self.node_of.items() if rank not in ranks
        )

    @property
    def missed_nodes(self) -> list[str]:
        """Lost nodes that the others go on without."""
        return [self.names[index] for index in sorted({self.node_of[rank] for rank in self.missed})]

    def unended(self, node: int) -> list[int]:
        """Ranks of a node of which no end is known."""
        return [rank for rank, index in self.node_of.items() if index == node and rank not in self.ended]

    def name(self, link: Link) -> str:
        """The node behind a link."""
        return self.names[link.node]

    def start_some(self) -> Link | None:
        """Starts the runner of the next node over ssh, if it may start now."""
        starting = sum(1 for link in self.open_links if not link.greeted)
        if not self.to_start or starting >= _AT_ONCE:
            return None
        index = self.to_start.pop(0)
        link = ssh_start.node_link(self._order.plan, index)
        link.ranks = [given["rank"] for given in self.nodes[index]["ranks"]]
        self.add(link)
        self.send_spec(link, index, None)
        return link

    def tasks_of(self, link: Link) -> int:
        """How many of its ranks are tasks of TensorFlow's, which get a port each."""
        given = self.nodes[link.node]["ranks"]
        return sum(1 for one in given if one["rank"] in link.ranks and one["task"])

    def has_link(self, rank: int) -> bool:
        """Whether there is, or was, a runner for the rank: another one is not the job's."""
        return any(rank in link.ranks for link in self.links)

    def add(self, link: Link) -> None:
        """From now on listens to it."""
        self.links.append(link)
        self.selector.register(link.reading, selectors.EVENT_READ, lambda: self.hear(link))

    def send_spec(self, link: Link, index: int, rank: int | None) -> None:
        """Tells a runner what to run."""
        order = self._order
        slots = order.turn.slots[self.names[index]]
        spec = frames.pack(runner_spec(order.plan, index, rank, order.turn.port, slots, order.restarts))
        if rank is not None and self.mpirun is not None:
            spec = self.mpirun.key.encrypt(spec, b"SPEC of rank %d" % rank)
        link.send_payload(frames.SPEC, spec)

    def tell(self, kind: bytes, fields: dict[str, Any] | None = None) -> bool:
        """Sends a frame to every runner; whether there was one."""
        links = self.open_links
        for link in links:
            link.send(kind, fields)
        return bool(links)

    def flush(self) -> None:
        """Sends what is waiting."""
        for link in self.open_links:
            link.flush()

    def fallen_silent(self) -> list[Link]:
        """Runners that gave no sign of life for as long as a node may.

        One whose words only wait to be read is none: the head itself may have been held up.
        """
        now = time.monotonic()
        late = [link for link in self.open_links if link.greeted and now - link.heard > frames.NODE_SILENT]
        return [link for link in late if not link.is_waiting]

    def forget(self, link: Link) -> None:
        """Its channel is at its end."""
        self.selector.unregister(link.reading)
        link.close()

    def drop(self, link: Link) -> None:
        """Closes its channel: the runner takes that as the order to end whatever it still has."""
        if link.open:
            self.forget(link)
        if not link.done:
            link.kill()

    def close(self) -> None:
        """Lets go of everything."""
        for link in self.links:
            if link.open and link.missing:
                self.lost.add(link.node)
            self.drop(link)
        for link in self.links:
            link.wait(_CLOSE_WITHIN)
        if self.mpirun is not None:
            self.mpirun.close()
        self.selector.close()
