"""The runners of one launch: starting them over ssh, their channels, and what is sent to all of them."""

from __future__ import annotations

import selectors
import socket
import subprocess
from collections.abc import Iterator, Mapping

from launch.remote.base import frames, timing
from launch.remote.base.records import Plan
from launch.remote.head.runners.channel import GOING, GREETED, READY, Channel
from launch.remote.head.runners.mpirun import Mpirun
from launch.remote.head.runners.node_command import start_on_node
from launch.remote.head.runners.runner_spec import runner_spec

__all__ = ["RunnerPool"]

_AT_ONCE = 48
"""Runners that start over ssh at a time: more only make each other wait for the head's processor."""


class RunnerPool:
    """Channels to the runners, each the data of its key in :attr:`selector`; ``slots`` and ``port`` are what
    the queue gave the job."""

    def __init__(self, plan: Plan, slots: dict[str, list[int]], port: int, restarts: int) -> None:
        self._plan, self._slots, self._port, self._restarts = plan, slots, port, restarts
        self.selector = selectors.DefaultSelector()
        self.channels: list[Channel] = []
        self.to_start: list[int] = []
        """Nodes whose runner has not been started over ssh yet."""
        self.mpirun: Mpirun | None = None

    @property
    def open_channels(self) -> list[Channel]:
        """Channels that are not at their end."""
        return [channel for channel in self.channels if channel.is_open]

    @property
    def is_at_work(self) -> bool:
        """Whether any runner has something left to do."""
        return any(not channel.is_done for channel in self.open_channels)

    @property
    def greeted_ranks(self) -> set[int]:
        """Ranks whose runner's HELLO has come."""
        return {rank for channel in self.channels if channel.is_greeted for rank in channel.ranks}

    def channels_of(self, node: int) -> list[Channel]:
        """Return the channels to a node's runners, closed ones included."""
        return [channel for channel in self.channels if channel.node == node]

    def is_finished(self, node: int) -> bool:
        """Return whether no runner of a node has anything left to do."""
        return all(channel.is_done for channel in self.channels_of(node))

    def has_channel(self, rank: int) -> bool:
        """Return whether a runner of the rank has ever connected: another one is not the job's."""
        return any(rank in channel.ranks for channel in self.channels)

    def start_runners(self) -> Iterator[Channel]:
        """Start the runners of the next nodes over ssh, as many as may start now; yield their channels."""
        while self.to_start:
            if sum(not channel.is_greeted for channel in self.open_channels) >= _AT_ONCE:
                return
            index = self.to_start.pop(0)
            command = f"node {self._plan['id']}"
            pipe = subprocess.PIPE
            process = start_on_node(self._plan, index, command, stdin=pipe, stderr=pipe)
            ranks = [given["rank"] for given in self._plan["nodes"][index]["ranks"]]
            channel = Channel(index, ranks, process=process)
            self._add(channel)
            self.send_spec(channel)
            yield channel

    def add_connection(self, node: int, rank: int, connection: socket.socket) -> Channel:
        """Return a channel over the connection of a runner that mpirun started, whose HELLO was read."""
        channel = Channel(node, [rank], connection=connection)
        channel.stage = GREETED
        self._add(channel)
        return channel

    def _add(self, channel: Channel) -> None:
        self.channels.append(channel)
        self.selector.register(channel.reading, selectors.EVENT_READ, channel)

    def send_spec(self, channel: Channel) -> None:
        """Send a runner its SPEC, encrypted where mpirun started the runner."""
        node = self._plan["nodes"][channel.node]
        rank = channel.ranks[0] if channel.connection is not None else None
        slots = self._slots[node["name"]]
        spec = frames.pack(runner_spec(self._plan, channel.node, rank, self._port, slots, self._restarts))
        if rank is not None and self.mpirun is not None:
            spec = self.mpirun.key.encrypt(spec, b"SPEC of rank %d" % rank)
        channel.send_payload(frames.SPEC, spec)

    def send_go(self, variables: Mapping[int, dict[str, str]]) -> None:
        """Let every runner start its ranks, with further ``variables`` by rank."""
        for channel in self.channels:
            channel.stage = GOING if channel.stage == READY else channel.stage
            given = {str(rank): variables[rank] for rank in channel.ranks if rank in variables}
            channel.send(frames.GO, given)

    def send_beat(self) -> None:
        """Send every runner a sign of life."""
        for channel in self.open_channels:
            channel.send(frames.BEAT)

    def send_stop(self, grace: float) -> bool:
        """Order every runner to end its ranks within ``grace`` seconds, and start no further runner; return
        whether there was a runner to order."""
        self.to_start.clear()
        runners = self.open_channels
        for channel in runners:
            channel.send_stop(grace)
        return bool(runners)

    def flush(self) -> None:
        """Send the queued frames of every channel."""
        for channel in self.open_channels:
            channel.flush()

    def silent_channels(self, now: float) -> list[Channel]:
        """Return the channels over which nothing came for ``timing.NODE_SILENT_S``, nor waits to be read: the
        head itself may have been held up."""
        return [
            channel
            for channel in self.open_channels
            if channel.is_greeted
            and now - channel.last_heard > timing.NODE_SILENT_S
            and not channel.has_unread_input
        ]

    def forget(self, channel: Channel) -> None:
        """Close a channel that is at its end."""
        self.selector.unregister(channel.reading)
        channel.close()

    def drop(self, channel: Channel) -> None:
        """Close a channel; its runner takes that as the order to end whatever it still has."""
        if channel.is_open:
            self.forget(channel)
        if not channel.is_done:
            channel.kill()

    def release_finished(self) -> None:
        """Close all channels once every runner has nothing left to do: until then no runner may leave."""
        runners = self.open_channels
        if all(channel.is_done for channel in runners):
            for channel in runners:
                self.drop(channel)

    def close(self) -> set[int]:
        """Close everything; return the nodes of which a runner was open and had unended ranks."""
        unfinished = {channel.node for channel in self.open_channels if channel.unended}
        for channel in self.channels:
            self.drop(channel)
        for channel in self.channels:
            channel.wait(timing.SSH_CLOSE_S)
        if self.mpirun is not None:
            self.mpirun.close()
        self.selector.close()
        return unfinished
