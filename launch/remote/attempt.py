"""One launch of a job: starts its runners, merges their output, ends them all when one fails."""

from __future__ import annotations

import os
import selectors
import time
from typing import TYPE_CHECKING, Any

from launch.remote import jobs, launchers, protocol, verdict
from launch.remote.failures import Failures
from launch.remote.mpi import CannotLaunch
from launch.remote.mpirun import Mpirun
from launch.remote.muster import Muster
from launch.remote.processes import SIGTERM
from launch.remote.records import LAUNCHER, StreamWriter, last_lines
from launch.remote.sweeping import sweep
from launch.remote.verdict import Outcome
from launch.remote.words import Words

if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.links import Link
    from launch.remote.turns import Turn

__all__ = ["Attempt"]

_AT_ONCE = 48
"""ssh connections in the making at a time: more only make each other wait for the head's processor."""
_TICK = 0.2
_SLACK = 4.0
"""Seconds after the grace until runners that have not reported their end are cut off."""
_MPIRUN_SLACK = 4.0
"""Seconds mpirun gets to end after the last runner; it takes its time after an MPI_Abort."""


class Attempt:
    """Runs the plan once, with the slots and the port of ``turn``."""

    def __init__(
        self,
        folder: jobs.Folder,
        plan: dict[str, Any],
        turn: Turn,
        stream: StreamWriter,
        on_held: Callable[[], None],
        on_running: Callable[[], None],
    ) -> None:
        self.folder, self.plan, self.turn, self.stream = folder, plan, turn, stream
        self.taken: dict[str, list[list[Any]]] = {}
        self._on_held, self._on_running = on_held, on_running
        self._nodes = plan["nodes"]
        self._names = [node["name"] for node in self._nodes]
        self._node_of = {given["rank"]: i for i, node in enumerate(self._nodes) for given in node["ranks"]}
        self._selector = selectors.DefaultSelector()
        self._links: list[Link] = []
        self._to_start: list[int] = []
        self._mpirun: Mpirun | None = None
        self._words = Words(self._selector, stream)
        self._words.hushed = self._is_over_but_for_mpirun
        self._muster = Muster(plan)
        self._overdue: list[int] = []
        self._users = set(self._node_of).difference(plan["services"])
        self._ended: dict[int, int] = {}
        self._started: set[int] = set()
        self._verdict: Outcome | None = None
        self._stopping: float | None = None
        self._cut_off = False
        self._begun = self._beaten = self._looked = time.monotonic()
        self._lost: set[int] = set()
        self._silent: set[int | None] = set()
        self._failures = Failures()

    def run(self) -> Outcome | None:
        """The job's outcome; None when nodes refused it slots that others hold: ``taken``, by node."""
        try:
            self._launch()
            while not self._over():
                self._turn_once()
            status = self._mpirun.status if self._mpirun is not None and not self._mpirun.runs else None
        except CannotLaunch as error:
            return Outcome("FAILED", launchers.NOT_FOUND, str(error))
        finally:
            self._close()
        if self.taken and (self._verdict is None or self._verdict.state != "CANCELLED"):
            return None
        sweep(self.plan, sorted(self._lost), self._silent)
        if self._verdict is None and self._muster.went is None:
            self._name_the_unfit()
        where = {rank: self._names[index] for rank, index in self._node_of.items()}
        return self._verdict or self._failures.first or verdict.judge(self.stream, where, self._ended, status)

    # -- starting ---------------------------------------------------------------------------------

    def _launch(self) -> None:
        if self.plan["kind"] != "mpi":
            self._to_start = list(range(len(self._nodes)))
            self._start_some()
            return
        self._mpirun = Mpirun(self.folder, self.plan)
        self._selector.register(self._mpirun.listener, selectors.EVENT_READ, self._accept)
        self._words.listen(self._mpirun.process.stdout, 0, 1)
        self._words.listen(self._mpirun.process.stderr, 0, 2)

    def _start_some(self) -> None:
        starting = sum(1 for link in self._links if link.open and not link.greeted)
        while self._to_start and starting < _AT_ONCE:
            index = self._to_start.pop(0)
            link = launchers.node_link(self.plan, index)
            link.ranks = [given["rank"] for given in self._nodes[index]["ranks"]]
            self._add(link)
            if link.process is not None:
                self._words.listen(link.process.stderr, index, 2)
            self._send_spec(link, index, None)
            starting += 1

    def _accept(self) -> None:
        link = self._mpirun.accept() if self._mpirun is not None else None
        if link is not None:
            self._add(link)

    def _add(self, link: Link) -> None:
        self._links.append(link)
        self._selector.register(link.reading, selectors.EVENT_READ, lambda: self._hear(link))

    def _send_spec(self, link: Link, index: int, rank: int | None) -> None:
        slots = self.turn.slots[self._names[index]]
        link.send(protocol.SPEC, jobs.runner_spec(self.plan, index, rank, self.turn.port, slots))

    def _is_over_but_for_mpirun(self) -> bool:
        # what it says then is a guess: it blames whichever runner left first
        return self._verdict is not None and not any(link.open for link in self._links)

    # -- the loop ---------------------------------------------------------------------------------

    def _turn_once(self) -> None:
        for key, _ in self._selector.select(_TICK):
            key.data()
        for link in self._links:
            if link.open:
                link.flush()
        self._start_some()
        failure = self._failures.settled
        if failure is not None and self._verdict is None:
            self._fail(failure)
        self._go_or_give_up()
        self._release()
        now = time.monotonic()
        if now - self._beaten >= protocol.BEAT_PERIOD:
            self._beaten = now
            for link in self._links:
                if link.open:
                    link.send(protocol.BEAT)
        if now - self._looked >= _TICK:
            self._looked = now
            if self._stopping is None:
                self._look_around(now)
            else:
                self._press(now - self._stopping - self.plan["grace_s"])

    def _look_around(self, now: float) -> None:
        if os.path.exists(self.folder.file("cancel")):
            self._fail(Outcome("CANCELLED", verdict.CANCELLED, ""))
        limit = self.plan["timeout_s"]
        if limit is not None and now - self._begun > limit:
            self._fail(Outcome("FAILED", verdict.TIMED_OUT, f"its time limit of {limit:g} s was over"))
        self._watch_the_start(now)
        for link in self._links:
            if link.open and link.greeted and now - link.heard > protocol.NODE_SILENT:
                self._silent.add(link.node)
                self._lose(link, f"no sign of life for {protocol.NODE_SILENT:g} s")
        # mpirun gone although ranks are missing, and no runner is left that has something to tell of them
        at_work = any(link.open and not link.done for link in self._links)
        if self._mpirun is not None and not self._mpirun.runs and not at_work:
            self._stop()

    def _watch_the_start(self, now: float) -> None:
        at_work = {link.node for link in self._links if link.greeted} if self.plan["setup"] else set()
        missing = self._muster.overdue(now, self._begun, at_work, self._started)
        if missing:
            self._overdue = missing
            self._lost.update(missing)
            if self._muster.went is None:
                self._stop()
            else:
                names = ", ".join(self._names[index] for index in missing)
                words = f"not started within {self.plan['start_limit_s']:g} s: {names}"
                self._fail(Outcome("FAILED", verdict.LOST_RANK, words))

    def _go_or_give_up(self) -> None:
        """Starts the ranks once every runner is ready, or none once it is known which nodes are unfit."""
        if self._muster.went is not None or self._stopping is not None:
            return
        if self._muster.is_complete:
            self._muster.went = time.monotonic()
            late = self._muster.late()
            for link in self._links:
                link.send(protocol.GO, {str(rank): late[rank] for rank in link.ranks if rank in late})
        elif self._muster.is_hopeless:
            self._stop()

    def _name_the_unfit(self) -> None:
        """No rank was started: says which nodes are why; of those that it lacks, mpirun knows no more."""
        if self._mpirun is not None and not self._muster.is_known:
            reasons = sweep(self.plan, self._muster.pending) or self._mpirun.unfit()
            for index, words in reasons.items():
                self._muster.unfit(index, [words])
        if not self._muster.is_known:
            for index in self._overdue:
                self._muster.unfit(index, [f"did not answer within {self.plan['start_limit_s']:g} s"])
        if self._muster.is_known:
            self._verdict = self._muster.outcome(self.stream)

    def _press(self, over: float) -> None:
        """While ending, ``over`` seconds past the grace: whatever is still there goes."""
        if over > _SLACK:
            for link in self._links:
                if link.open and not link.done:
                    self._lose(link, "its processes did not end")
        if over > _SLACK + _MPIRUN_SLACK and self._mpirun is not None:
            self._mpirun.signal(SIGTERM)
        self._cut_off = over > _SLACK + 2 * _MPIRUN_SLACK

    def _release(self) -> None:
        """Lets runners go once no process of the job is left: closing their channel is the sign."""
        still = [link for link in self._links if link.open]
        if self._stopping is None and len(self._ended) < len(self._node_of):
            return
        if all(link.done for link in still):
            for link in still:
                self._drop(link)

    def _over(self) -> bool:
        if self._cut_off or self._to_start or any(link.open for link in self._links):
            return self._cut_off
        # mpirun would wait for its daemon on a node that says nothing
        return self._mpirun is None or bool(self._silent) or not (self._mpirun.runs or self._words.are_coming)

    # -- what runners say -------------------------------------------------------------------------

    def _hear(self, link: Link) -> None:
        if not link.open:
            return  # dropped earlier in this very turn
        try:
            frames = link.receive()
            at_end = not link.open
            for kind, payload in frames:
                if kind == protocol.OUT and link.node is not None:
                    rank, number = protocol.OUTPUT.unpack_from(payload)
                    self.stream.write(rank, link.node, number, payload[protocol.OUTPUT.size :])
                elif kind not in (protocol.BEAT, protocol.OUT):
                    self._take(link, kind, protocol.unpack(payload))
        except protocol.ProtocolError as error:
            self._lose(link, str(error))
            return
        if at_end:
            self._selector.unregister(link.reading)
            link.close()
            self._gone(link)

    def _take(self, link: Link, kind: bytes, fields: dict[str, Any]) -> None:
        if kind == protocol.HELLO:
            self._greet(link, fields)
        elif kind == protocol.STARTED:
            self._started.update(link.ranks)
            if len(self._started) == len(self._node_of):
                self._on_running()
        elif kind == protocol.EXIT:
            self._exit(link, fields)
        elif kind == protocol.READY:
            self._muster.ready(link.ranks, fields["ports"])
            self._hold(link)
        elif kind == protocol.HELD:
            self._hold(link)
        elif kind == protocol.FAILED:
            link.done = True
            self._cannot(link, fields["reasons"])
        elif kind == protocol.BUSY:
            link.done = True
            self.taken[self._name(link)] = fields["taken"]
            self._stop()
        elif kind == protocol.DONE:
            link.done = True
            if fields["left"]:
                words = f"{self._name(link)}: processes {fields['left']} do not die: restart this node\n"
                self.stream.write(LAUNCHER, link.node or 0, 2, words.encode())

    def _hold(self, link: Link) -> None:
        if self._stopping is None and self._muster.holds(link.ranks):
            self._on_held()

    def _greet(self, link: Link, fields: dict[str, Any]) -> None:
        link.greeted = True
        if self._mpirun is None:
            return
        rank = fields["rank"]
        if fields["token"] != self._mpirun.token or rank not in self._node_of or self._stopping is not None:
            self._drop(link)
            return
        index = self._node_of[rank]
        planned = self._names[index]
        local = [given["rank"] for given in self._nodes[index]["ranks"]].index(rank)
        where = fields["node"] if fields["node"] in self._names else planned
        link.node, link.ranks = index, [rank]
        if (where, fields["local_rank"]) != (planned, local):
            link.done = True
            self._fail(verdict.misplaced_rank(rank, where, fields["local_rank"], planned, local))
            return
        self._send_spec(link, index, rank)

    def _exit(self, link: Link, fields: dict[str, Any]) -> None:
        name = self._name(link)
        rank, status, stopped = fields["rank"], fields["status"], bool(fields["stopped"])
        link.ended.add(rank)
        self._ended[rank] = status
        record = {"rank": rank, "node": name, "status": status, "stopped": stopped, "time": time.time()}
        self.folder.append("exits.jsonl", record)
        if status and not stopped:
            failed = verdict.rank_failed(self.stream, rank, link.node or 0, name, status)
            said = self.stream.tails.get((rank, link.node or 0), b"")
            self._failures.add(fields["time_us"], failed, said)
        if self.plan["services"] and all(self._ended.get(rank) == 0 for rank in self._users):
            # parameter servers serve until they are told that nobody needs them any more
            self._fail(Outcome("SUCCEEDED", 0, ""))

    def _cannot(self, link: Link, reasons: list[str]) -> None:
        """A node is unfit; once ranks run, a node that cannot start its own ends the job at once."""
        if self._muster.went is not None:
            self._fail(Outcome("FAILED", verdict.LOST_RANK, f"{self._name(link)}: {'; '.join(reasons)}"))
        elif self._stopping is None and link.node is not None:
            self._muster.unfit(link.node, reasons)

    def _gone(self, link: Link) -> None:
        """The channel closed: fine once all its ranks' ends are known."""
        if link.node is None or link.done or self.taken or (link.greeted and not link.missing):
            return
        self._lost.add(link.node)
        why = "its runner was killed, or the node went away"
        if link.process is not None:
            link.wait(_TICK)
            self._words.read_all()
            words = last_lines(self.stream.tails.get((LAUNCHER, link.node), b""), 3)
            why = "; ".join(words) or why
        self._without(link, link.node, link.missing, why)

    def _lose(self, link: Link, why: str) -> None:
        self._drop(link)
        if link.node is not None:
            self._lost.add(link.node)
            self._without(link, link.node, link.missing or link.ranks, why)

    def _without(self, link: Link, node: int, ranks: list[int], why: str) -> None:
        if self._muster.went is None:
            self._cannot(link, [why])
        else:
            self._fail(verdict.lost_node(self.stream, ranks, node, self._name(link), why))

    def _drop(self, link: Link) -> None:
        if link.open:
            self._selector.unregister(link.reading)
            link.close()
        if not link.done:
            link.kill()

    def _name(self, link: Link) -> str:
        return str(self._names[link.node]) if link.node is not None else "a stranger"

    # -- ending -----------------------------------------------------------------------------------

    def _fail(self, outcome: Outcome) -> None:
        """The first outcome is the job's; everything still running is told to end."""
        if self._verdict is None:
            self._verdict = self._failures.first or outcome
        self._stop()

    def _stop(self) -> None:
        if self._stopping is not None:
            return
        self._stopping = time.monotonic()
        self._to_start.clear()
        told = False
        for link in self._links:
            if link.open:
                link.send(protocol.STOP, {"grace_ms": int(self.plan["grace_s"] * 1000)})
                told = True
        if self._mpirun is not None and not told:
            self._mpirun.signal(SIGTERM)

    def _close(self) -> None:
        for link in self._links:
            if link.open and link.missing and link.node is not None:
                self._lost.add(link.node)
            self._drop(link)
        for link in self._links:
            link.wait(_SLACK)
        if self._mpirun is not None:
            self._mpirun.close()
        self._selector.close()
