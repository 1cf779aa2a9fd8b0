"""One launch of a job: starts its runners, merges their output, ends them all when one fails."""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

from launch.remote import jobs, launchers, protocol
from launch.remote.links import Link
from launch.remote.processes import SIGKILL, SIGTERM
from launch.remote.records import LAUNCHER, StreamWriter, last_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.turns import Turn

__all__ = ["Attempt", "Outcome"]

_AT_ONCE = 48
"""ssh connections in the making at a time: sshd's own default for unauthenticated ones is 10 on each node,
but the head's processor is what tires first."""
_TICK = 0.2
_SLACK = 4.0
"""Seconds after the grace until runners that have not ended are cut off."""
_MPIRUN_SLACK = 4.0
"""Seconds mpirun gets to end after the last runner: it waits 3 s of its own after an MPI_Abort."""
_SWEEP_S = 10.0
_LOST = 255
"""The exit status of a rank of which nobody knows how it ended, as ssh gives it."""
_TIMED_OUT = 124
_CANCELLED = 130


class Outcome:
    """How a job ended; ``failure`` names the first failing rank, its node and its last lines."""

    def __init__(
        self, state: str, exit_status: int, reason: str, failure: dict[str, Any] | None = None
    ) -> None:
        self.state, self.exit_status, self.reason, self.failure = state, exit_status, reason, failure


class Attempt:
    """Runs the plan once, with the slots and the port of ``turn``."""

    def __init__(
        self,
        folder: jobs.Folder,
        plan: dict[str, Any],
        turn: Turn,
        stream: StreamWriter,
        on_running: Callable[[], None],
    ) -> None:
        self.folder, self.plan, self.turn, self.stream, self.on_running = (
            folder,
            plan,
            turn,
            stream,
            on_running,
        )
        self.held_by = ""
        self._nodes = plan["nodes"]
        self._node_of = {given["rank"]: i for i, node in enumerate(self._nodes) for given in node["ranks"]}
        self._selector = selectors.DefaultSelector()
        self._links: list[Link] = []
        self._to_start: list[int] = []
        self._mpirun: subprocess.Popen[bytes] | None = None
        self._mpirun_pipes = 0
        self._listener: socket.socket | None = None
        self._token = secrets.token_hex(16)
        self._ended: dict[int, int] = {}
        self._started: set[int] = set()
        self._running = False
        self._verdict: Outcome | None = None
        self._busy = False
        self._stopping: float | None = None
        self._cut_off = False
        self._beaten = self._looked = time.monotonic()
        self._begun = time.monotonic()
        self._lost: set[int] = set()

    def run(self) -> Outcome | None:
        """The job's outcome; None when another job holds its slots (``held_by`` says which)."""
        try:
            self._launch()
            while not self._over():
                self._turn_once()
        except launchers.CannotLaunch as error:
            return Outcome("FAILED", 127, str(error))
        finally:
            self._close()
        if self._busy and (self._verdict is None or self._verdict.state != "CANCELLED"):
            return None
        self._sweep()
        return self._verdict or self._judge()

    # -- starting ---------------------------------------------------------------------------------

    def _launch(self) -> None:
        if self.plan["kind"] != "mpi":
            self._to_start = list(range(len(self._nodes)))
            self._start_some()
            return
        mpi = launchers.find_mpi(sorted(self.plan["mpirun"]))
        with open(self.folder.file("hostfile"), "w", encoding="utf-8") as file:
            file.write(self.plan["hostfile"])
        self._listener = socket.socket()
        self._listener.bind((self._nodes[0]["private_ip"], 0))
        self._listener.listen(1024)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        argv = [
            argument.replace("{hostfile}", self.folder.file("hostfile"))
            for argument in self.plan["mpirun"][mpi.major]
        ]
        host, port = self._listener.getsockname()
        hidden = {"RANKLIFT_TOKEN": self._token, "RANKLIFT_SUPERVISOR": f"{host}:{port}"}
        self._mpirun = launchers.start_mpirun(argv, mpi, hidden)
        for pipe, number in ((self._mpirun.stdout, 1), (self._mpirun.stderr, 2)):
            self._watch_words(pipe, 0, number)
            self._mpirun_pipes += 1

    def _start_some(self) -> None:
        starting = sum(1 for link in self._links if link.open and not link.greeted)
        while self._to_start and starting < _AT_ONCE and self._stopping is None:
            index = self._to_start.pop(0)
            link = launchers.node_link(self.plan, index)
            link.ranks = [given["rank"] for given in self._nodes[index]["ranks"]]
            self._add(link)
            assert link.process is not None  # noqa: S101
            self._watch_words(link.process.stderr, index, 2)
            self._send_spec(link, None)
            starting += 1

    def _add(self, link: Link) -> None:
        self._links.append(link)
        self._selector.register(link.reading, selectors.EVENT_READ, lambda: self._hear(link))

    def _send_spec(self, link: Link, rank: int | None) -> None:
        assert link.node is not None  # noqa: S101
        slots = self.turn.slots[self._nodes[link.node]["name"]]
        link.send(protocol.SPEC, jobs.runner_spec(self.plan, link.node, rank, self.turn.port, slots))

    def _watch_words(self, pipe: Any, node: int, number: int) -> None:
        """Passes on what a launcher (mpirun, ssh, a runner) says of itself."""
        fd = pipe.fileno()
        os.set_blocking(fd, False)

        def read() -> None:
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                return
            if data:
                self.stream.write(LAUNCHER, node, number, data)
            else:
                self._selector.unregister(fd)
                pipe.close()
                if self._mpirun is not None:
                    self._mpirun_pipes -= 1

        self._selector.register(fd, selectors.EVENT_READ, read)

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._add(Link(None, connection=connection))

    # -- the loop ---------------------------------------------------------------------------------

    def _turn_once(self) -> None:
        for key, _ in self._selector.select(_TICK):
            key.data()
        for link in self._links:
            if link.open:
                link.flush()
        self._start_some()
        self._release()
        now = time.monotonic()
        if now - self._beaten >= protocol.BEAT_PERIOD:
            self._beaten = now
            for link in self._links:
                if link.open:
                    link.send(protocol.BEAT)
        if now - self._looked >= _TICK:
            self._looked = now
            self._look_around(now)

    def _look_around(self, now: float) -> None:
        if self._stopping is not None:
            self._press(now)
            return
        if os.path.exists(self.folder.file("cancel")):
            self._fail(Outcome("CANCELLED", _CANCELLED, "cancelled"))
        limit = self.plan["timeout_s"]
        if limit is not None and now - self._begun > limit:
            self._fail(Outcome("FAILED", _TIMED_OUT, f"its time limit of {limit:g} s was over"))
        if not self._running and now - self._begun > self.plan["start_limit_s"]:
            missing = sorted({self._node_of[r] for r in self._node_of if r not in self._started})
            names = ", ".join(self._nodes[i]["name"] for i in missing)
            self._lost.update(missing)
            self._fail(
                Outcome("FAILED", _LOST, f"not started within {self.plan['start_limit_s']:g} s: {names}")
            )
        for link in self._links:
            if link.open and link.greeted and now - link.heard > protocol.NODE_SILENT:
                self._lose(link, f"no sign of life for {protocol.NODE_SILENT:g} s")
        if self._mpirun is not None and self._mpirun.poll() is not None:
            self._mpirun_ended()

    def _press(self, now: float) -> None:
        """While ending: past the grace, whatever is still there goes."""
        assert self._stopping is not None  # noqa: S101
        over = now - self._stopping - self.plan["grace_s"]
        if over > _SLACK:
            for link in self._links:
                if link.open and not link.done:
                    self._lose(link, "its processes did not end")
        if over > _SLACK + _MPIRUN_SLACK and self._mpirun is not None and self._mpirun.poll() is None:
            self._mpirun.send_signal(SIGTERM)
        if over > _SLACK + 2 * _MPIRUN_SLACK:
            self._cut_off = True

    def _release(self) -> None:
        """Lets runners go once no process of the job is left: closing their channel is the sign."""
        still = [link for link in self._links if link.open]
        everyone = self._stopping is not None or len(self._ended) == len(self._node_of)
        if still and everyone and all(link.done for link in still):
            for link in still:
                self._drop(link)

    def _over(self) -> bool:
        if self._cut_off:
            return True
        if self._to_start and self._stopping is None:
            return False
        if any(link.open for link in self._links):
            return False
        if self._mpirun is not None:
            return self._mpirun.poll() is not None and self._mpirun_pipes == 0
        return True

    # -- what runners say -------------------------------------------------------------------------

    def _hear(self, link: Link) -> None:
        try:
            frames = link.receive()
        except protocol.ProtocolError as error:
            self._lose(link, str(error))
            return
        for kind, payload in frames:
            if kind == protocol.OUT:
                if link.node is not None:
                    rank, number = protocol.OUTPUT.unpack_from(payload)
                    self.stream.write(rank, link.node, number, payload[protocol.OUTPUT.size :])
            elif kind != protocol.BEAT:
                self._take(link, kind, protocol.unpack(payload))
            if not link.open:
                return
        if not link.open:
            self._selector.unregister(link.reading)
            link.close()
            self._gone(link)

    def _take(self, link: Link, kind: bytes, fields: dict[str, Any]) -> None:
        if kind == protocol.HELLO:
            self._greet(link, fields)
        elif kind == protocol.STARTED:
            link.started = True
            self._started.update(link.ranks)
            if not self._running and len(self._started) == len(self._node_of):
                self._running = True
                self.on_running()
        elif kind == protocol.EXIT:
            self._exit(link, fields["rank"], fields["status"], bool(fields["stopped"]))
        elif kind == protocol.FAILED:
            link.done = True
            self._fail(Outcome("FAILED", _LOST, f"{self._name(link)}: {fields['reason']}"))
        elif kind == protocol.BUSY:
            link.done = True
            self._busy = True
            self.held_by = f"{', '.join(fields['holders'])} on {self._name(link)}"
            self._stop()
        elif kind == protocol.DONE:
            link.done = True
            if fields["left"]:
                self.stream.write(
                    LAUNCHER,
                    link.node or 0,
                    2,
                    f"{self._name(link)}: processes {fields['left']} do not die: restart this node\n".encode(),
                )

    def _greet(self, link: Link, fields: dict[str, Any]) -> None:
        link.greeted = True
        if link.process is not None:
            return
        rank = fields["rank"]
        if fields["token"] != self._token or rank not in self._node_of:
            self._drop(link)
            return
        index = self._node_of[rank]
        local = [given["rank"] for given in self._nodes[index]["ranks"]].index(rank)
        names = [node["name"] for node in self._nodes]
        where = fields["node"] if fields["node"] in names else names[index]
        link.node, link.ranks = index, [rank]
        if local != fields["local_rank"] or where != names[index]:
            self._fail(
                Outcome(
                    "FAILED",
                    _LOST,
                    f"mpirun put rank {rank} on {where} as its local rank {fields['local_rank']}, "
                    f"the plan has it on {names[index]} as local rank {local}",
                )
            )
            return
        if self._stopping is not None:
            self._drop(link)
            return
        self._send_spec(link, rank)

    def _exit(self, link: Link, rank: int, status: int, stopped: bool) -> None:
        assert link.node is not None  # noqa: S101
        name = self._nodes[link.node]["name"]
        link.ended.add(rank)
        self._ended[rank] = status
        self.folder.append(
            "exits.jsonl",
            {"rank": rank, "node": name, "status": status, "stopped": stopped, "time": time.time()},
        )
        if status and not stopped and self._verdict is None:
            what = (
                f"was ended by signal {status - 128}" if status > 128 else f"ended with exit status {status}"
            )
            self._fail(
                Outcome(
                    "FAILED", status, f"rank {rank} on {name} {what}", self._failure(rank, link.node, status)
                )
            )

    def _failure(self, rank: int, node: int, status: int) -> dict[str, Any]:
        return {
            "rank": rank,
            "node": self._nodes[node]["name"],
            "status": status,
            "last_lines": last_lines(self.stream.tails.get((rank, node), b"")),
        }

    def _gone(self, link: Link) -> None:
        """The channel closed: fine once all its ranks' ends are known."""
        if link.node is None or link.done or self._busy:
            return
        if link.missing or not link.greeted:
            self._lost.add(link.node)
            words = last_lines(self.stream.tails.get((LAUNCHER, link.node), b""), 3)
            if link.process is not None and not link.greeted:
                time.sleep(0.05)  # what ssh said of it may still be in the pipe
                self._drain_words()
                words = last_lines(self.stream.tails.get((LAUNCHER, link.node), b""), 3)
            why = (
                "; ".join(words)
                if words and link.process is not None
                else "its runner was killed or the node went away"
            )
            ranks = ", ".join(map(str, link.missing))
            self._fail(
                Outcome(
                    "FAILED",
                    _LOST,
                    f"{self._name(link)} (rank {ranks}) is lost: {why}",
                    self._failure(link.missing[0], link.node, _LOST) if link.missing else None,
                )
            )

    def _drain_words(self) -> None:
        for key, _ in self._selector.select(0):
            if key.data.__name__ == "read":
                key.data()

    def _lose(self, link: Link, why: str) -> None:
        self._drop(link)
        if link.node is None:
            return
        self._lost.add(link.node)
        ranks = link.missing or link.ranks
        self._fail(
            Outcome(
                "FAILED",
                _LOST,
                f"{self._name(link)} (rank {', '.join(map(str, ranks))}): {why}",
                self._failure(ranks[0], link.node, _LOST) if ranks else None,
            )
        )

    def _drop(self, link: Link) -> None:
        if link.open:
            self._selector.unregister(link.reading)
            link.close()
        if link.process is not None and not link.done and link.process.poll() is None:
            link.process.kill()

    def _name(self, link: Link) -> str:
        return self._nodes[link.node]["name"] if link.node is not None else "a stranger"

    # -- ending -----------------------------------------------------------------------------------

    def _fail(self, verdict: Outcome) -> None:
        """The first verdict is the job's; everything still running is told to end."""
        if self._verdict is None:
            self._verdict = verdict
        self._stop()

    def _stop(self) -> None:
        if self._stopping is not None:
            return
        self._stopping = time.monotonic()
        self._to_start.clear()
        grace = int(self.plan["grace_s"] * 1000)
        for link in self._links:
            if link.open:
                link.send(protocol.STOP, {"grace_ms": grace})
        if self._mpirun is not None and not any(link.open for link in self._links):
            self._mpirun.send_signal(SIGTERM)

    def _mpirun_ended(self) -> None:
        assert self._mpirun is not None  # noqa: S101
        if self._mpirun_pipes or len(self._ended) == len(self._node_of) or any(x.open for x in self._links):
            return
        self._stop()

    def _judge(self) -> Outcome:
        """When nobody failed on its own account."""
        worst = next((status for status in self._ended.values() if status), 0)
        code = self._mpirun.returncode if self._mpirun is not None else 0
        code = 128 - code if code < 0 else code
        missing = sorted(set(self._node_of) - set(self._ended))
        words = last_lines(b"".join(t for (r, _), t in self.stream.tails.items() if r == LAUNCHER))
        if code or worst or missing:
            status = code or worst or _LOST
            if self._mpirun is not None:
                reason = f"mpirun ended with exit status {code}"
                if missing:
                    reason += f" and {len(missing)} of {len(self._node_of)} ranks never reported their end"
            else:
                reason = f"ranks {missing} never reported their end"
            return Outcome(
                "FAILED", status, reason, {"rank": None, "node": None, "status": status, "last_lines": words}
            )
        return Outcome("SUCCEEDED", 0, "")

    def _close(self) -> None:
        for link in self._links:
            if link.open and link.missing and link.node is not None:
                self._lost.add(link.node)
            self._drop(link)
            if link.process is not None:
                try:
                    link.process.wait(_SLACK)
                except subprocess.TimeoutExpired:
                    link.process.kill()
                    link.process.wait()
        if self._mpirun is not None:
            if self._mpirun.poll() is None:
                self._mpirun.kill()
            self._mpirun.wait()
        if self._listener is not None:
            self._listener.close()
        self._selector.close()

    def _sweep(self) -> None:
        """On nodes whose runner did not report, ends what may be left; the silent ones are not waited for long."""
        sweeps = [launchers.sweep(self.plan, index) for index in sorted(self._lost)]
        until = time.monotonic() + _SWEEP_S
        for sweep in sweeps:
            try:
                sweep.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                sweep.kill()
                sweep.wait()
