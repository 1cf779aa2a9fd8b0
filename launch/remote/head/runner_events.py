"""What runners' frames change: the output, the ranks' states, the slots; and what follows.

A frame may bring anything: every field is checked by :mod:`~launch.remote.head.runners.frame_fields`, and its
time by the channel, before a handler sees it.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from launch.remote.base import encryption, frames
from launch.remote.base.messages import outlived
from launch.remote.base.payloads import Hello, RankExit, Ready
from launch.remote.base.records import RankEnd, Taken
from launch.remote.debug.hang_watch import HangWatch
from launch.remote.head import outcome
from launch.remote.head.health_report import HealthReport
from launch.remote.head.job_state import JobState, LaunchOrder
from launch.remote.head.node_loss import NodeLoss
from launch.remote.head.outcome import Outcome
from launch.remote.head.rank_states import RankStates
from launch.remote.head.runners import frame_fields
from launch.remote.head.runners.channel import DONE, REFUSED, Channel
from launch.remote.head.runners.clocks import Clocks
from launch.remote.head.runners.runner_pool import RunnerPool
from launch.remote.head.shutdown import Shutdown, Stop
from launch.remote.head.start_barrier import StartBarrier
from launch.remote.log.writer import LAUNCHER

if TYPE_CHECKING:
    from launch.remote.sample.recorder import SampleRecorder
    from launch.remote.sample.sample_records import Sample

__all__ = ["RunnerEvents"]

_MEND_KEY = "copy the head's there, with mode 0600, or `fab replace` the node"
_NO_KEY = (
    f"has no cluster key {encryption.CLUSTER_KEY}, with which MPI jobs encrypt their traffic: {_MEND_KEY}"
)
_OTHER_KEY = (
    f"its cluster key {encryption.CLUSTER_KEY} is not the head's, so nothing was sent to it: {_MEND_KEY}"
)


class RunnerEvents:
    """Applies frames to a launch's state, and records in ``job_state`` that slots are held and ranks run."""

    def __init__(
        self,
        order: LaunchOrder,
        job_state: JobState,
        pool: RunnerPool,
        ranks: RankStates,
        barrier: StartBarrier,
        shutdown: Shutdown,
        losses: NodeLoss,
    ) -> None:
        self._order, self._job_state, self._pool = order, job_state, pool
        self._ranks, self._barrier, self._shutdown, self._losses = ranks, barrier, shutdown, losses
        self.health = HealthReport(order)
        self.hangs = HangWatch(order, pool, ranks)
        self.clocks = Clocks()
        self.networks: dict[str, str] = {}
        """By node, the mark of its networks: those of the runners that are ready."""
        self.taken: Taken = {}
        """By node, the slots for which it refused the job, each with its holder."""
        self._samples: SampleRecorder | None = None
        self._users = set(ranks.node_of).difference(order.plan["services"])

    def on_frame(self, channel: Channel, kind: bytes, payload: bytes, now: float) -> Stop | None:
        """Apply one frame. Raise :class:`~launch.remote.base.frames.ProtocolError` where it may not come."""
        fields: Any = {}
        rank = None
        if frame_fields.is_output(kind):
            rank = frame_fields.output(kind, payload)
        elif kind != frames.BEAT:
            fields = frame_fields.read(kind, payload)
            rank = fields["rank"] if kind == frames.NOTE else None
        channel.accept(kind, rank)
        if rank is not None and rank >= 0:
            stream, data = frame_fields.printed(kind, payload)
            self.hangs.on_output(rank, now, stream, data)
        self._order.stream.on_frame(kind, payload, channel.node, self._name(channel))
        if kind == frames.EXIT:
            return self._on_exit(channel, fields, now)
        if kind == frames.FAILED:
            return self._losses.on_unfit(channel.node, fields["reasons"], now)
        if kind == frames.BUSY:
            self.taken[self._name(channel)] = fields["taken"]
            return Stop()
        self._on_report(channel, kind, fields, now)
        return None

    def _on_report(self, channel: Channel, kind: bytes, fields: Any, now: float) -> None:
        """Apply a frame after which the launch goes on."""
        if kind == frames.HELD:
            self._on_held(channel)
        elif kind == frames.READY:
            self._on_ready(channel, fields)
        elif kind == frames.HEALTH:
            self.health.on_findings(channel.node, fields)
        elif kind == frames.SAMPLE:
            self._on_sample(channel, fields)
        elif kind == frames.STACKS:
            self.hangs.on_stacks(channel, fields)
        elif kind == frames.STARTED:
            self.clocks.on_time(channel.node, fields["time_us"], time.time_ns() // 1000)
            self._ranks.started.update(channel.ranks)
            self.report_running()
        elif kind == frames.EVICTION:
            self._losses.on_notice(channel.node, fields, now)
        elif kind == frames.DONE:
            lines = []
            if fields["left"]:
                lines.append(f"processes {fields['left']} survived SIGKILL: restart this node")
            if fields["ended"]:
                lines.append(outlived(fields["ended"], self._order.plan["grace_s"]))
            for line in lines:
                text = f"{self._name(channel)}: {line}\n".encode()
                self._order.stream.write(LAUNCHER, channel.node, 2, text)

    @property
    def changed_networks(self) -> list[str]:
        """Nodes whose networks are not as they were when InfiniBand was proven between them."""
        proven = self._order.networks
        return [name for name, mark in self.networks.items() if proven and proven.get(name) != mark]

    def report_running(self) -> None:
        """Set the job's state to RUNNING once every expected rank has started."""
        if self._ranks.all_started:
            names = self._ranks.dispensed_nodes
            reason = f"continues without {', '.join(names)}" if names else ""
            self._job_state.set_running(self._order.port, reason)

    def report_ending(self) -> None:
        """Record that the launch ends, unless the job is to wait for slots or for another proof."""
        if not (self.taken or self.changed_networks):
            self._job_state.set_ending()

    def write_samples(self, now: float) -> float:
        """Write what of the samples is due; return the time of the next file, infinite without one."""
        return float("inf") if self._samples is None else self._samples.write_due(now)

    def close_samples(self) -> None:
        """Write the samples for the last time."""
        if self._samples is not None:
            self._samples.close()

    def _on_sample(self, channel: Channel, fields: Sample) -> None:
        if self._samples is None:
            from launch.remote.sample.recorder import SampleRecorder  # no job's start waits for it

            self._samples = SampleRecorder(self._order.folder.path, self._order.restarts)
        self._samples.add(self._name(channel), channel.ranks, fields)

    def _name(self, channel: Channel) -> str:
        return self._ranks.names[channel.node]

    def _on_held(self, channel: Channel) -> None:
        if not self._shutdown.has_begun and self._barrier.on_held(channel.ranks):
            self._job_state.set_held(self._order.port)

    def _on_ready(self, channel: Channel, fields: Ready) -> None:
        given = self._order.plan["nodes"][channel.node]["ranks"]
        tasks = sum(1 for one in given if one["rank"] in channel.ranks and one["task"])
        if len(fields["ports"]) != tasks:
            raise frames.ProtocolError(f"{len(fields['ports'])} ports")
        if fields["network"]:
            self.networks[self._name(channel)] = fields["network"]
        self._barrier.on_ready(channel.ranks, fields["ports"])
        self._on_held(channel)

    def _on_exit(self, channel: Channel, fields: RankExit, now: float) -> Stop | None:
        order, name = self._order, self._name(channel)
        rank, status, stopped = fields["rank"], fields["status"], bool(fields["stopped"])
        if rank not in channel.unended:
            raise frames.ProtocolError(f"the end of rank {rank}, which has ended or is another runner's")
        channel.ended.add(rank)
        self._ranks.ended[rank] = status
        if self._samples is not None:
            self._samples.end_rank(rank)
        record: RankEnd = {
            "rank": rank,
            "node": name,
            "status": status,
            "signal": fields["signal"] or None,
            "stopped": stopped,
            "attempt": order.restarts,
        }
        now_us = time.time_ns() // 1000
        self.clocks.on_time(channel.node, fields["time_us"], now_us)
        order.folder.append("exits.jsonl", {**record, "time": now_us / 1e6})
        order.folder.event("exit", **record)
        if stopped:
            self._losses.on_stopped(channel.node, now)
        elif status:
            failed = outcome.rank_failed(order.stream, rank, channel.node, name, status, fields["signal"])
            output = order.stream.tail(rank, channel.node)
            ended_us = self.clocks.by_head(channel.node, fields["time_us"])
            self._shutdown.failures.add(ended_us, failed, output, now)
        if order.plan["services"] and all(self._ranks.ended.get(user) == 0 for user in self._users):
            # parameter servers serve until they are ended
            return Stop(Outcome("SUCCEEDED", 0, ""))
        return None

    # -- runners that mpirun started ------------------------------------------------------------------

    def on_hello(self, connection: socket.socket, hello: Hello, now: float) -> Stop | None:
        """Make a channel of a connection whose HELLO had the job's token, unless its rank has one."""
        pool, ranks, rank = self._pool, self._ranks, hello["rank"]
        if pool.mpirun is None or rank not in ranks.node_of or pool.has_channel(rank):
            connection.close()
            return None
        if self._shutdown.has_begun:
            with suppress(OSError):  # without STOP it would connect again
                connection.send(frames.frame(frames.STOP, frames.pack({"grace_ms": 0})))
            connection.close()
            return None
        planned = ranks.node_of[rank]
        where = ranks.names.index(hello["node"]) if hello["node"] in ranks.names else planned
        proof = pool.mpirun.key.proof(frames.hello_words(hello))
        is_proved = encryption.is_equal(hello["proof"], proof)
        if not is_proved and not self._is_from(connection, where):
            connection.close()  # the token alone, which crosses the network, proves no node's identity
            return None
        channel = pool.add_connection(planned, rank, connection)
        if not is_proved:
            channel.stage = REFUSED
            return self._losses.on_unfit(where, [_OTHER_KEY if hello["proof"] else _NO_KEY], now)
        local = ranks.ranks_on(planned).index(rank)
        if (where, hello["local_rank"]) != (planned, local):
            channel.stage = DONE
            names = ranks.names[where], ranks.names[planned]
            return Stop(outcome.misplaced_rank(rank, names[0], hello["local_rank"], names[1], local))
        pool.send_spec(channel)
        return None

    def _is_from(self, connection: socket.socket, node: int) -> bool:
        try:
            return bool(connection.getpeername()[0] == self._order.plan["nodes"][node]["private_ip"])
        except OSError:
            return False  # it was reset
