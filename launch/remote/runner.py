"""The process beside the ranks of a node: starts them, passes their output on, ends all of their processes.

For PyTorch jobs the supervisor starts one runner per node over ssh and speaks with it over stdin and stdout.
For MPI jobs mpirun starts one per rank, which connects back to the supervisor, so that no value of the
user's is ever on mpirun's command line. Either way that channel is the tether: when it closes, or nothing
came over it for 30 s, everything the runner started is ended.

Many runners start at once on few cores in a rehearsal. So here, and in what this imports, are ``_socket`` and
``_signal`` instead of their public faces, which import :mod:`enum`, and there is no :mod:`typing`, which
imports :mod:`re`: each costs as much as starting the interpreter does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys
import time

from launch.remote import processes, protocol, workplace
from launch.remote.processes import SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["Runner", "run_node", "run_rank"]

_CHUNK = 65536
_BACKLOG = 4 * 1024 * 1024
"""Bytes waiting to be sent from which on the ranks' pipes are left full."""
_LAST_WORDS = 0.3
"""Seconds that are waited for output after a rank's last process ended."""
_LEFTOVER_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL for processes that outlive their rank."""
_DIE_WITHIN = 5.0
"""Seconds after SIGKILL until a process counts as unkillable (stuck in the kernel)."""
ABORT_GRACE = 0.7
"""Seconds between SIGTERM and SIGKILL when a signal to the runner itself is the reason: mpirun's own SIGKILL
comes 1 s after its SIGTERM and would leave the ranks' orphans behind."""
_TICK_MS = 250


class _Rank:
    """One process of the job while it runs."""

    def __init__(self, rank: int, pid: int, pipes: dict[int, int], log: int) -> None:
        self.rank, self.pid, self.pipes, self.log = rank, pid, pipes, log
        self.status: int | None = None


class Runner:
    """Runs the ranks of one SPEC; ``channel_in`` and ``channel_out`` lead to the supervisor."""

    def __init__(self, channel_in: int, channel_out: int) -> None:
        self.channel_in, self.channel_out = channel_in, channel_out
        self.ranks: list[_Rank] = []
        self._outgoing = bytearray()
        self._decoder = protocol.Decoder()
        self._heard = self._beaten = time.monotonic()
        self._stop_at: float | None = None
        self._stopped = False
        self._grace = 0.0
        self._tethered = True
        self._exits = -1
        self._wake, wake = os.pipe()
        for end in (self._wake, wake, channel_in, channel_out):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (SIGCHLD, SIGHUP, SIGINT, SIGTERM):
            _signal.signal(number, self._on_signal)

    def hello(self, fields: dict[str, Any]) -> None:
        """Introduces this runner to the supervisor."""
        self._send(protocol.HELLO, fields)

    def run(self) -> int:
        """Waits for the SPEC and runs its ranks to their end; gives 0 however they ended.

        How they ended is told on the channel. mpirun would end the other ranks by its own lights if it saw a
        runner end early or badly, so runners leave when the supervisor closes the channel, all at once.
        """
        held: list[int] = []
        while not self.ranks:
            spec = self._wait_for_spec()
            if spec is None or self._stopped:
                self._send(protocol.DONE, {"left": []})
                return self._leave()
            self._grace = spec["grace_ms"] / 1000
            try:
                held = workplace.take_slots(spec)
                self._start(spec)
            except workplace.SlotsTaken as taken:
                self._send(protocol.BUSY, {"slots": taken.slots, "holders": taken.holders})
                return self._leave()
            except OSError as error:
                self._send(protocol.FAILED, {"reason": str(error)})
                return self._leave()
        while any(rank.status is None for rank in self.ranks):
            self._turn(_TICK_MS)
        left = self._end_leftovers()
        self._send(protocol.DONE, {"left": left})
        for slot in held:
            os.close(slot)
        return self._leave()

    def _wait_for_spec(self) -> dict[str, Any] | None:
        while self._tethered and not self._stopped:
            for kind, payload in self._turn(_TICK_MS):
                if kind == protocol.SPEC:
                    spec: dict[str, Any] = protocol.unpack(payload)
                    return spec
        return None

    def _start(self, spec: dict[str, Any]) -> None:
        folder = workplace.prepare(spec)
        self._exits = os.open(
            folder + "/exits.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        processes.become_subreaper()
        for given in spec["ranks"]:
            number = given["rank"]
            env = workplace.environment(spec, given, os.environ)
            argv = workplace.expand(spec["argv"], spec["expand"], env)
            log = workplace.open_log(folder, number)
            pid, out, err = processes.spawn(argv, env, workplace.full(spec["cwd"]))
            self.ranks.append(_Rank(number, pid, {out: 1, err: 2}, log))
        self._send(protocol.STARTED, {"pids": [rank.pid for rank in self.ranks]})

    def _turn(self, wait_ms: int) -> list[tuple[bytes, bytes]]:
        """Handles whatever happens within ``wait_ms``; gives the frames that were not for this method."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._tethered:
            poll.register(self.channel_in, select.POLLIN)
            if self._outgoing:
                poll.register(self.channel_out, select.POLLOUT)
        if len(self._outgoing) < _BACKLOG:
            for fd in self._pipes():
                poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(wait_ms)}
        if self._wake in ready:
            os.read(self._wake, _CHUNK)
        for rank in self.ranks:
            for fd in ready.intersection(rank.pipes):
                self._pass_on(rank, fd)
        others = self._receive() if self.channel_in in ready else []
        self._reap()
        self._keep_time()
        self._flush()
        return others

    def _pipes(self) -> Iterable[int]:
        return (fd for rank in self.ranks for fd in rank.pipes)

    def _pass_on(self, rank: _Rank, fd: int) -> bool:
        """Moves what a pipe holds into the log and the channel; False when it holds nothing more."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            os.close(fd)
            del rank.pipes[fd]
            return False
        workplace.write_log(rank.log, data)
        self._send_raw(protocol.frame(protocol.OUT, protocol.OUTPUT.pack(rank.rank, rank.pipes[fd]) + data))
        return True

    def _reap(self) -> None:
        by_pid = {rank.pid: rank for rank in self.ranks}
        while self.ranks:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = by_pid.get(pid)
            if rank is None:
                continue
            rank.status = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            for fd in list(rank.pipes):
                while self._pass_on(rank, fd):
                    pass
            workplace.write_exit(self._exits, rank.rank, rank.status, self._stopped)
            self._send(
                protocol.EXIT, {"rank": rank.rank, "status": rank.status, "stopped": int(self._stopped)}
            )

    def _receive(self) -> list[tuple[bytes, bytes]]:
        others = []
        try:
            data = os.read(self.channel_in, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._tethered = False
            self.stop(self._grace)
            return []
        self._heard = time.monotonic()
        for kind, payload in self._decoder.feed(data):
            if kind == protocol.STOP:
                self.stop(protocol.unpack(payload)["grace_ms"] / 1000)
            elif kind != protocol.BEAT:
                others.append((kind, payload))
        return others

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now - self._beaten >= protocol.BEAT_PERIOD:
            self._beaten = now
            self._send_raw(protocol.frame(protocol.BEAT))
        if self._tethered and now - self._heard > protocol.TETHER:
            self._tethered = False
            self.stop(self._grace)
        if self._stop_at is not None and now >= self._stop_at:
            processes.signal_descendants(SIGKILL)

    def stop(self, grace: float) -> None:
        """SIGTERM to everything, SIGKILL after ``grace`` seconds; asked again, the earlier end counts."""
        at = time.monotonic() + grace
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)
        if not self._stopped:
            self._stopped = True
            if any(rank.status is None for rank in self.ranks):
                processes.signal_descendants(SIGTERM)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != SIGCHLD:
            self.stop(min(self._grace, ABORT_GRACE))

    def _end_leftovers(self) -> list[int]:
        """After the ranks ended: ends what they left behind and passes on its last words."""
        left: list[int] = []
        if processes.has_children():
            processes.signal_descendants(SIGTERM)
            until = time.monotonic() + _LEFTOVER_GRACE
            while time.monotonic() < until and processes.has_children():
                self._turn(20)
            left = processes.end_descendants(_DIE_WITHIN)
        until = time.monotonic() + _LAST_WORDS
        while any(rank.pipes for rank in self.ranks) and time.monotonic() < until:
            self._turn(20)
        return left

    def _leave(self) -> int:
        """Sends what is still to be sent and waits for the channel's end."""
        while self._tethered:
            self._turn(_TICK_MS)
        return 0

    def _send(self, kind: bytes, fields: dict[str, Any]) -> None:
        self._send_raw(protocol.frame(kind, protocol.pack(fields)))

    def _send_raw(self, data: bytes) -> None:
        self._outgoing += data
        self._flush()

    def _flush(self) -> None:
        while self._outgoing and self._tethered:
            try:
                sent = os.write(self.channel_out, self._outgoing[:_CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self._tethered = False
                self.stop(self._grace)
                return
            del self._outgoing[:sent]
        if not self._tethered:
            self._outgoing.clear()


def run_node() -> int:
    """The runner of a whole node, its channel on stdin and stdout."""
    channel_in, channel_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    if os.getsid(0) != os.getpid():
        try:
            os.setsid()
        except PermissionError:
            os.setpgid(0, 0)
    processes.die_with_parent(SIGTERM)
    runner = Runner(channel_in, channel_out)
    runner.hello({"rank": -1, "local_rank": -1, "node": os.uname().nodename, "pid": os.getpid(), "token": ""})
    return runner.run()


def run_rank() -> int:
    """The runner of one rank under mpirun, which tells it its rank through the environment."""
    processes.die_with_parent(SIGTERM)
    token = os.environ.pop("RANKLIFT_TOKEN", "")
    host, _, port = os.environ.pop("RANKLIFT_SUPERVISOR", "").rpartition(":")
    channel = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    channel.settimeout(protocol.TETHER)
    try:
        channel.connect((host, int(port)))
    except OSError as error:
        sys.stderr.write(f"no way from {os.uname().nodename} to the supervisor at {host}:{port}: {error}\n")
        return 1
    channel.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    runner = Runner(channel.fileno(), os.dup(channel.fileno()))
    runner.hello(
        {
            "token": token,
            "rank": int(os.environ["OMPI_COMM_WORLD_RANK"]),
            "local_rank": int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]),
            "node": os.uname().nodename,
            "pid": os.getpid(),
        }
    )
    return runner.run()
