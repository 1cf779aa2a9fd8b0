"""What runners tell, and what their silence does: the ranks' output, starts and ends, nodes that are lost."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from launch.remote.base import encryption, eviction, frame_fields
from launch.remote.base import frames as protocol
from launch.remote.base.eviction import Eviction
from launch.remote.head import outcome
from launch.remote.head.outcome import Outcome
from launch.remote.head.runners import ssh_start
from launch.remote.head.runners.channel import DONE, GREETED, READY, STARTED, Link
from launch.remote.log.writer import LAUNCHER, last_lines

if TYPE_CHECKING:
    import socket
    import subprocess
    from collections.abc import Callable

    from launch.remote.base.records import Taken
    from launch.remote.head.launcher_output import Words
    from launch.remote.head.runners.runner_pool import Crew, Order
    from launch.remote.head.runners.start_barrier import Muster
    from launch.remote.head.shutdown import Stopping

__all__ = ["Hearing"]

_GATHER = 0.02
"""Seconds in which more of it comes together when only a little output came: hundreds of ranks that print now
and then are heard in one turn."""
_MUCH = 16 * 1024
"""Bytes at once that show that a runner has more to send than it could."""
_LAST_WORDS_S = 0.2
"""Seconds that an ssh client gets to say why it ends."""
_SWEEP_PATIENCE_S = 3
_MEND_KEY = "copy the head's there, with mode 0600, or `fab replace` the node"
_NO_KEY = (
    f"has no cluster key {encryption.CLUSTER_KEY}, with which MPI jobs encrypt what they send: {_MEND_KEY}"
)
_OTHER_KEY = (
    f"its cluster key {encryption.CLUSTER_KEY} is not the head's, so nothing was sent to it: {_MEND_KEY}"
)


class Hearing:
    """``on_held`` is called once the runners hold all of the job's slots, ``on_running`` when every rank runs
    and, with the reason, when the job goes on without a node."""

    def __init__(
        self,
        order: Order,
        crew: Crew,
        stopping: Stopping,
        muster: Muster,
        words: Words,
        on_held: Callable[[], None],
        on_running: Callable[[str], None],
    ) -> None:
        self.taken: Taken = {}
        """By node, the slots for which it refused the job, each with its holder."""
        self._has_heard = self._is_pressed = False
        self._order, self._crew, self._stopping = order, crew, stopping
        self._muster, self._words = muster, words
        self._on_held, self._on_running = on_held, on_running
        self._users = set(crew.node_of).difference(order.plan["services"])
        self._told_lost: list[int] = []
        self._sweeps: list[subprocess.Popen[bytes]] = []
        self._noticed: dict[int, Eviction] = {}
        """By node, the notices that Azure has given."""
        self._heeded: list[int] = []
        self._evicted: Outcome | None = None

    def let_gather(self) -> None:
        """Before each turn: waits a moment if all that came in the last one was a little output."""
        if self._has_heard and not self._is_pressed:
            time.sleep(_GATHER)
        self._has_heard = self._is_pressed = False

    def hear(self, link: Link) -> None:
        """Something came over a link, be it its end."""
        if not link.open:
            return  # dropped earlier in this very turn
        try:
            frames = link.receive()
            at_end = not link.open
            self._has_heard = True
            self._is_pressed |= at_end or link.took >= _MUCH
            for kind, payload in frames:
                self._hear_one(link, kind, payload)
        except protocol.ProtocolError as error:
            self.lose(link, str(error))
            return
        if at_end:
            self._crew.forget(link)
            self._gone(link)

    def _hear_one(self, link: Link, kind: bytes, payload: bytes) -> None:
        node = link.node
        if frame_fields.is_output(kind):
            link.check(kind, frame_fields.output(kind, payload))
            self._order.stream.hear(kind, payload, node, self._crew.name(link))
            return
        if kind == protocol.BEAT:
            link.check(kind)
            return
        fields = frame_fields.read(kind, payload)
        if kind == protocol.NOTE:
            link.check(kind, fields["rank"])
            self._order.stream.hear(kind, payload, node, self._crew.name(link))
            return
        link.check(kind)
        self._is_pressed = True
        self._take(link, kind, fields)

    def lose(self, link: Link, why: str) -> None:
        """Lets go of a runner that has not told everything, and of its node with it."""
        self._crew.drop(link)
        self._without(link.node, why)

    def blame(self, status: int) -> Outcome | None:
        """The node without which mpirun could not go on, by its own words; for when nothing else is known."""
        crew = self._crew
        name = outcome.blamed_node(self._order.stream, crew.names)
        if name is None:
            return None
        node = crew.names.index(name)
        ranks = crew.unended(node) or [given["rank"] for given in crew.nodes[node]["ranks"]]
        why = f"mpirun {outcome.way_of_ending(status, 0)} when it lost touch with its daemon there"
        crew.lost.add(node)
        self._order.folder.event("lost-node", node=name, reason=why)
        return outcome.lost_node(ranks, name, why)

    def heed(self, now: float) -> None:
        """Ends what runs on nodes that Azure takes, once it is time for that; the job with it if it must."""
        own = self._order.plan["grace_s"]
        for node, coming in list(self._noticed.items()):
            if node not in self._heeded and coming.due(own, now):
                self._heeded.append(node)
                self._take_leave(node, coming, coming.grace(own, now))

    @property
    def unswept(self) -> set[int]:
        """Lost nodes on which something of the job may be left: what Azure took has told of its end."""
        left = {node for node in self._heeded if all(link.done for link in self._links(node))}
        return self._crew.lost - left

    def _links(self, node: int) -> list[Link]:
        return [link for link in self._crew.links if link.node == node]

    def close(self) -> None:
        """Waits for what still looks after lost nodes."""
        for process in self._sweeps:
            process.kill()
            process.communicate()

    # -- one frame --------------------------------------------------------------------------------

    def _take(self, link: Link, kind: bytes, fields: dict[str, Any]) -> None:
        if kind == protocol.HELLO:
            link.stage = GREETED
        elif kind == protocol.STARTED:
            link.stage = STARTED
            self._crew.started.update(link.ranks)
            self._check_started()
        elif kind == protocol.EXIT:
            self._exit(link, fields)
        elif kind == protocol.READY:
            if len(fields["ports"]) != self._crew.tasks_of(link):
                raise protocol.ProtocolError(f"{len(fields['ports'])} ports")
            self._muster.ready(link.ranks, fields["ports"])
            link.stage = READY
            self._hold(link)
        elif kind == protocol.HELD:
            self._hold(link)
        elif kind == protocol.EVICTION:
            self._notice(link, fields)
        elif kind == protocol.FAILED:
            link.stage = DONE
            self._cannot(link.node, fields["reasons"])
        elif kind == protocol.BUSY:
            link.stage = DONE
            self.taken[self._crew.name(link)] = fields["taken"]
            self._stopping.stop()
        elif kind == protocol.DONE:
            link.stage = DONE
            if fields["left"]:
                words = f"{self._crew.name(link)}: processes {fields['left']} do not die: restart this node\n"
                self._order.stream.write(LAUNCHER, link.node, 2, words.encode())

    def _check_started(self) -> None:
        if self._crew.all_started:
            names = self._crew.missed_nodes
            self._on_running(f"goes on without {', '.join(names)}" if names else "")

    def _hold(self, link: Link) -> None:
        if not self._stopping.has_begun and self._muster.holds(link.ranks):
            self._on_held()

    def take_in(self, connection: socket.socket, hello: dict[str, Any]) -> None:
        """Make a link of a connection over which a HELLO with the job's token came, if its rank has none."""
        crew, rank = self._crew, hello["rank"]
        mpirun = crew.mpirun
        if mpirun is None or rank not in crew.node_of or crew.has_link(rank):
            connection.close()
            return
        if self._stopping.has_begun:
            with suppress(OSError):  # else it would connect again
                connection.send(protocol.frame(protocol.STOP, protocol.pack({"grace_ms": 0})))
            connection.close()
            return
        index = crew.node_of[rank]
        planned = crew.names[index]
        where = hello["node"] if hello["node"] in crew.names else planned
        is_proved = encryption.is_equal(hello["proof"], mpirun.key.proof(protocol.hello_words(hello)))
        if not is_proved and not self._is_from(connection, crew.names.index(where)):
            connection.close()  # the token alone, which crosses the network, says nothing of any node
            return
        link = Link(index, connection=connection)
        link.stage, link.ranks = GREETED, [rank]
        crew.add(link)
        local = [given["rank"] for given in crew.nodes[index]["ranks"]].index(rank)
        if not is_proved:
            link.stage = DONE
            self._cannot(crew.names.index(where), [_OTHER_KEY if hello["proof"] else _NO_KEY])
        elif (where, hello["local_rank"]) != (planned, local):
            link.stage = DONE
            found = outcome.misplaced_rank(rank, where, hello["local_rank"], planned, local)
            self._stopping.fail(found)
        else:
            crew.send_spec(link, index, rank)

    def _is_from(self, connection: socket.socket, node: int) -> bool:
        try:
            return bool(connection.getpeername()[0] == self._crew.nodes[node]["private_ip"])
        except OSError:
            return False  # it was reset

    def _exit(self, link: Link, fields: dict[str, Any]) -> None:
        order, name = self._order, self._crew.name(link)
        rank, status, stopped = fields["rank"], fields["status"], bool(fields["stopped"])
        if rank not in link.missing:
            raise protocol.ProtocolError(f"the end of rank {rank}, which has ended or is another runner's")
        link.ended.add(rank)
        self._crew.ended[rank] = status
        record = {"rank": rank, "node": name, "status": status, "signal": fields["signal"] or None}
        record.update(stopped=stopped, attempt=order.restarts)
        order.folder.append("exits.jsonl", dict(record, time=time.time()))
        order.folder.event("exit", **record)
        if status and not stopped:
            number = record["signal"] or 0
            failed = outcome.rank_failed(order.stream, rank, link.node, name, status, number)
            said = order.stream.tail(rank, link.node)
            self._stopping.failures.add(fields["time_us"], failed, said)
        if order.plan["services"] and all(self._crew.ended.get(rank) == 0 for rank in self._users):
            # parameter servers serve until they are told that nobody needs them any more
            self._stopping.fail(Outcome("SUCCEEDED", 0, ""))

    # -- nodes that cannot take part, or no longer ------------------------------------------------

    def _cannot(self, node: int, reasons: list[str]) -> None:
        """A node is unfit; once ranks run, a node that cannot start its own ends the job at once."""
        if self._muster.went is not None:
            reason = f"{self._crew.names[node]}: {'; '.join(reasons)}"
            self._stopping.fail(Outcome("FAILED", outcome.LOST_RANK, reason))
        elif not self._stopping.has_begun:
            self._muster.unfit(node, reasons)

    def _gone(self, link: Link) -> None:
        """The channel closed: fine once all its ranks' ends are known."""
        if link.done or self.taken or (link.greeted and not link.missing):
            return
        why = "its runner was killed, or the node went away"
        if link.process is not None:
            link.wait(_LAST_WORDS_S)
            self._words.read_all()
            words = last_lines(self._order.stream.tail(LAUNCHER, link.node), 3)
            why = "; ".join(words) or why
        self._without(link.node, why)

    def _without(self, node: int, why: str) -> None:
        crew, name = self._crew, self._crew.names[node]
        if node in crew.lost and node in self._heeded:
            return  # it was expected to go
        crew.lost.add(node)
        if self._muster.went is None:
            self._cannot(node, [why])
            return
        if node not in self._told_lost:
            self._told_lost.append(node)
            self._order.folder.event("lost-node", node=name, reason=why)
        if self._is_dispensable(node):
            self._go_on_without(node, f"{name} is lost: {why}")
            # its own runner ends what is there unless it was that which was killed
            self._sweeps.append(ssh_start.sweep(self._order.plan, node, _SWEEP_PATIENCE_S))
        else:
            self._stopping.fail(outcome.lost_node(self._crew.unended(node), name, why))

    def _notice(self, link: Link, fields: dict[str, Any]) -> None:
        """Azure takes a node, or does not any more; each of its runners says so."""
        node = link.node
        if node in self._heeded:
            return
        if not fields["type"]:
            if self._noticed.pop(node, None) is not None:
                why = "will not be taken by Azure after all"
                self._order.folder.event("eviction", node=self._crew.names[node], reason=why)
            return
        coming = Eviction(self._crew.names[node], fields, time.monotonic())
        if node not in self._noticed:
            self._order.folder.event("eviction", node=coming.node, reason=coming.words)
        self._noticed[node] = coming

    def _take_leave(self, node: int, coming: Eviction, grace: float) -> None:
        crew = self._crew
        if self._muster.went is None:
            self._cannot(node, [coming.words])
        elif not crew.unended(node) and node != 0 and crew.mpirun is None:
            return  # its part is done
        elif self._evicted is not None:
            self._stopping.stop(grace)
            self._evicted.reason = eviction.told(self._noticed[one] for one in self._heeded)
        elif self._is_dispensable(node):
            crew.lost.add(node)
            for link in self._links(node):
                link.send(protocol.STOP, {"grace_ms": int(grace * 1000)})
            self._go_on_without(node, f"{coming.node} {coming.words}")
        else:
            self._evicted = outcome.taken_node(coming.node, eviction.told([coming]))
            self._stopping.fail(self._evicted, grace)

    def _is_dispensable(self, node: int) -> bool:
        """Whether the job's own launcher, whose processes meet at the head, goes on with the nodes left."""
        fewest = self._order.plan.get("min_nodes")
        left = len(self._crew.nodes) - len(self._crew.lost | {node})
        return fewest is not None and left >= fewest and node != 0 and not self._stopping.has_begun

    def _go_on_without(self, node: int, why: str) -> None:
        crew = self._crew
        crew.missed.update(crew.unended(node))
        left, fewest = len(crew.nodes) - len(crew.lost), self._order.plan["min_nodes"]
        words = f"{why}; going on with {left} nodes, at least {fewest} are needed\n"
        self._order.stream.write(LAUNCHER, node, 2, words.encode())
        self._check_started()
