"""A runner's event loop: channel to the supervisor, output and exits of processes, time limits."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import time

from launch.remote.base import eviction, frames, processes, timing
from launch.remote.base.files import append, expand_home, write_exit
from launch.remote.base.processes import SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM
from launch.remote.base.rate_limit import Outlet, RecentOutput
from launch.remote.descent import DescentRecord, program_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from launch.remote.base.payloads import Done, Hello, RankExit, RunnerSpec, Started, Stop
    from launch.remote.debug.debug_child import DebugChild
    from launch.remote.debug.dump_lines import DumpLines
    from launch.remote.node.runtimes.container import Container
    from launch.remote.sample.sampler import Sampler

__all__ = ["NODE", "NO_LOG", "TICK_MS", "Loop", "Process", "open_log"]

_CHUNK = 65536
_BACKLOG = 8 * 1024 * 1024
"""Unsent bytes from which output of ranks that print much is left out, until half of the bytes are sent; at
twice as many, output of all ranks. The ranks' pipes are always drained: no rank waits for the head."""
_GATHER = 0.1
"""Seconds for which output is gathered after a send, so that one frame carries many lines."""
_AT_END = 16
"""Chunks read from a pipe after its rank's exit: no pipe holds more, and another process that writes to the
pipe may never stop."""
TICK_MS = 250


NODE = -1
"""Rank number of a process that the node runs once for all of its ranks."""
NO_LOG = -1


class Process:
    """A running process of the job, or one that prepares the node."""

    def __init__(self, rank: int, pid: int, pipes: dict[int, int], log: int) -> None:
        self.rank, self.pid, self.pipes, self.log = rank, pid, pipes, log
        self.status: int | None = None
        self.stopped = False
        """Whether the process still ran when the stop was ordered."""
        self.output = b""
        self.outlet: Outlet | None = None
        self.recent = RecentOutput(time.monotonic())


class Loop:
    """Event loop of a runner; ``channel_in`` and ``channel_out`` are descriptors of its channel."""

    def __init__(self, channel_in: int, channel_out: int) -> None:
        self.channel = frames.FrameChannel(channel_in, channel_out)
        self.ranks: list[Process] = []
        self.container: Container | None = None
        """What the ranks are started in; None for the node itself."""
        self._beaten = self._looked = time.monotonic()
        self._notice: tuple[int, int] | None = None
        self._stop_at: float | None = None
        self._stopped = False
        self._grace = 0.0
        self._tethered = True
        self.is_supervisor_lost = False
        """Whether the supervisor went silent with the channel open: it is cut off, or its node is dead."""
        self._exits = -1
        self._descent: DescentRecord | None = None
        """File that records what descends from this runner, and when it is due."""
        self._rate = self._burst = 0
        self._sent = 0.0
        self._has_room = True
        self._sampled: RunnerSpec | None = None
        self._sample_at: float | None = None
        self._sampler: Sampler | None = None
        self._debug: DebugChild | None = None
        self._dumps: DumpLines | None = None
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (SIGCHLD, SIGHUP, SIGINT, SIGTERM):
            _signal.signal(number, self._on_signal)

    def hello(self, fields: Hello) -> None:
        """Send HELLO, which introduces this runner to the supervisor."""
        self._send(frames.HELLO, fields)

    def _wait_for(self, wanted: bytes) -> bytes | None:
        """Return the payload of the next frame of the ``wanted`` kind; None once the runner must end."""
        while self._tethered and not self._stopped:
            for kind, payload in self._handle_events(TICK_MS):
                if kind == wanted:
                    return payload
        return None

    def _handle_events(self, wait_ms: int) -> list[tuple[bytes, bytes]]:
        """Handle events for up to ``wait_ms``; return the frames that the loop itself does not handle."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._tethered:
            poll.register(self.channel.reading, select.POLLIN)
            if self.channel.unsent:
                poll.register(self.channel.writing, select.POLLOUT)
        for fd in self._pipes():
            poll.register(fd, select.POLLIN)
        if self._debug is not None:
            poll.register(self._debug.fd, select.POLLIN)
        due = self._sample_at or float("inf")
        if any(outlet.size for outlet in self._outlets()):
            due = min(due, self._sent + _GATHER)
        ready = {fd for fd, _ in poll.poll(max(0, min(wait_ms, 1000 * (due - time.monotonic()))))}
        if self._wake in ready:
            os.read(self._wake, _CHUNK)
        for rank in self.ranks:
            for fd in ready.intersection(rank.pipes):
                self._forward_chunk(rank, fd)
        others = self._receive() if self.channel.reading in ready else []
        self._reap()
        self._keep_time()
        self._queue_output()
        self.channel.flush()
        self._watch_tether()
        return others

    def _pipes(self) -> Iterable[int]:
        return (fd for rank in self.ranks for fd in rank.pipes)

    def _outlets(self) -> Iterable[Outlet]:
        return (rank.outlet for rank in self.ranks if rank.outlet is not None)

    def _forward_chunk(self, rank: Process, fd: int) -> bool:
        """Move a chunk from a pipe to the log and the outlet; return False when the pipe is empty."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            os.close(fd)
            del rank.pipes[fd]
            return False
        self._log_and_forward(rank, rank.pipes[fd], data)
        return True

    def _log_and_forward(self, rank: Process, stream: int, data: bytes) -> None:
        if rank.rank == NODE:
            rank.output = (rank.output + data)[-_CHUNK:]
        if rank.log == NO_LOG:
            return
        now = time.monotonic()
        if rank.outlet is None:
            log = f"setup-{os.uname().nodename}" if rank.rank == NODE else f"rank-{rank.rank}"
            rank.outlet = Outlet(rank.rank, log, self._rate, self._burst, now)
        rank.outlet.logged(*append(rank.log, rank.outlet.gap + data))
        is_let_through = rank.outlet.is_modest and self.channel.unsent < 2 * _BACKLOG
        rank.outlet.take(stream, data, now, self._has_room or is_let_through)
        is_new = self._dumps is None or self._dumps.has_more(rank.rank, stream, data)
        rank.recent.add(stream, data, now, is_new=is_new)
        if rank.outlet.size >= _CHUNK:
            self._queue_output(at_once=True)

    def _queue_output(self, at_once: bool = False) -> None:
        """Move output from the outlets to the send buffer, every ``_GATHER`` seconds or ``at_once``."""
        now = time.monotonic()
        waiting = [outlet for outlet in self._outlets() if outlet.size]
        if waiting and (at_once or now - self._sent >= _GATHER):
            self._sent = now
            for outlet in waiting:
                self.channel.queue(outlet.frames())
        self._has_room = self.channel.unsent < (_BACKLOG if self._has_room else _BACKLOG // 2)

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
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            rank.status = 128 + number if number else os.WEXITSTATUS(status)
            for fd in list(rank.pipes):
                for _ in range(_AT_END):
                    if not self._forward_chunk(rank, fd):
                        break
            if self.container is not None:
                rank.status, number, note = self.container.exit_of(rank.rank, pid, rank.status, number)
                if note:
                    self._log_and_forward(rank, 2, note.encode())
            if rank.outlet is not None:
                rank.outlet.end()
            if rank.rank == NODE:
                continue
            write_exit(self._exits, rank.rank, rank.status, rank.stopped)
            self._sample_ended(rank)
            ended: RankExit = {
                "rank": rank.rank,
                "status": rank.status,
                "signal": number,
                "stopped": int(rank.stopped),
                "time_us": int(time.time() * 1e6),
            }
            self._send(frames.EXIT, ended)

    def _receive(self) -> list[tuple[bytes, bytes]]:
        others = []
        for kind, payload in self.channel.receive():
            if kind == frames.STOP:
                order: Stop = frames.unpack(payload)
                self.stop(order["grace_ms"] / 1000)
            elif kind == frames.DEBUG:
                self._look_at_ranks(payload)
            elif kind != frames.BEAT:
                others.append((kind, payload))
        return others

    def _keep_time(self) -> None:
        now = time.monotonic()
        for outlet in self._outlets():
            outlet.tick(now, self._has_room)
        if now - self._beaten >= timing.BEAT_S:
            self._beaten = now
            self.channel.send(frames.BEAT)
        if self._debug is not None:
            self._debug = self._debug.step(self._send)
        if self._descent is not None:
            self._descent.keep(now)
        if now - self._looked >= TICK_MS / 1000:
            self._looked = now
            self._check_notice()
        if self._sampled is not None and self._sample_at is not None and now >= self._sample_at:
            self._sample_at = self._take_sample(self._sampled, now)
        if self._stop_at is not None and now >= self._stop_at:
            self._signal_all(SIGKILL)

    def _watch_tether(self) -> None:
        """End everything once the channel is closed, or silent for longer than a supervisor ever is."""
        is_closed = self.channel.is_cut or not self.channel.is_open
        if self._tethered and (is_closed or time.monotonic() - self.channel.last_heard > timing.TETHER_S):
            self._tethered = self.channel.is_open = False
            self.is_supervisor_lost = not is_closed
            self.stop(self._grace)

    def _report_started(self, spec: RunnerSpec, pids: list[int]) -> None:
        """Send STARTED, and samples from then on until the last rank has ended."""
        started: Started = {"pids": pids, "time_us": int(time.time() * 1e6)}
        self._send(frames.STARTED, started)
        self._descent = DescentRecord(expand_home(spec["folder"]))
        self._sampled, self._sample_at = spec, time.monotonic() + timing.SAMPLE_BEGIN_S

    def _take_sample(self, spec: RunnerSpec, now: float) -> float | None:
        """Send a sample of the ranks that run; return the time of the next, None where no rank runs."""
        ranks = {rank.rank: rank for rank in self.ranks if rank.rank != NODE and rank.status is None}
        if not ranks:
            return None
        try:
            if self._sampler is None:
                from launch.remote.sample.sampler import Sampler  # no rank's start waits for it

                self._sampler = Sampler(spec, {number: rank.pid for number, rank in ranks.items()}, now)
            elif self._has_room:  # behind megabytes of output it would be old when it arrives
                outputs = {number: rank.recent for number, rank in ranks.items()}
                self._send(frames.SAMPLE, self._sampler.sample(outputs, now))
            return self._sampler.next_at(now)
        except Exception as error:  # noqa: BLE001  whatever it is, no job ends because of its samples
            os.write(2, f"{os.uname().nodename}: no samples from now on: {error!r}\n".encode())
            return None

    def _sample_ended(self, rank: Process) -> None:
        try:
            sampler = self._sampler
            last = sampler.last_metrics(rank.rank, rank.recent, time.monotonic()) if sampler else None
        except Exception:  # noqa: BLE001  as in _take_sample()
            return
        if last is not None:
            self._send(frames.SAMPLE, last)

    def _look_at_ranks(self, order: bytes) -> None:
        """Start to look at what the ranks do, unless that is done already."""
        running = {rank.rank: rank.pid for rank in self.ranks if rank.status is None and rank.rank != NODE}
        if self._debug is None and running and not self._stopped:
            from launch.remote.debug.debug_child import DebugChild  # only jobs that hang need it
            from launch.remote.debug.dump_lines import DumpLines

            self._dumps = self._dumps or DumpLines()  # a look asks PyTorch, which prints then
            self._debug = DebugChild(order, running, self.container.started_in if self.container else None)

    def _check_notice(self) -> None:
        stamp = eviction.stamp()
        if stamp != self._notice:
            self._notice = stamp
            self._send(frames.EVICTION, eviction.notice())

    def stop(self, grace: float) -> None:
        """Send SIGTERM to all descendants, SIGKILL after ``grace`` seconds; the earliest end wins."""
        at = time.monotonic() + grace
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)
        if not self._stopped:
            self._stopped = True
            if any(rank.status is None for rank in self.ranks):
                signalled = self._signal_all(SIGTERM)
                for rank in self.ranks:
                    # a rank that failed by itself may not be reaped yet, if its peers were reported first
                    rank.stopped = rank.pid in signalled

    def _signal_all(self, number: int) -> list[int]:
        if self.container is None:
            return processes.signal_descendants(number)
        return processes.signal_descendants(number, self.container.list_processes, self.container.spared)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != SIGCHLD:
            self.stop(min(self._grace, timing.ABORT_GRACE_S))

    def _add_process(self, spawned: tuple[int, int, int], log: int) -> Process:
        """Return a process of the whole node, with its pid and pipes as they were ``spawned``."""
        pid, out, err = spawned
        process = Process(NODE, pid, {out: 1, err: 2}, log)
        self.ranks.append(process)
        return process

    def _run_bounded(self, argv: list[str], limit: float) -> tuple[int | None, bytes]:
        """Run a command on the node itself; return its exit status, None where it did not end within
        ``limit`` seconds or the runner has to, and its output. It is left behind where SIGKILL does not end
        it: it hangs in the kernel."""
        process = self._add_process(processes.spawn(argv, dict(os.environ), "/"), NO_LOG)
        kill_at = time.monotonic() + limit
        while process.status is None and time.monotonic() < kill_at and not self._stopped:
            self._handle_events(TICK_MS)
        if process.status is not None:
            return process.status, process.output
        processes.kill(process.pid, SIGKILL)
        give_up_at = time.monotonic() + timing.LOOK_KILLED_S
        while process.status is None and time.monotonic() < give_up_at:
            self._handle_events(TICK_MS)
        self.ranks.remove(process)
        for pipe in process.pipes:
            os.close(pipe)
        return None, process.output

    def _end_leftovers(self) -> Done:
        """End the processes that outlive the ranks and forward their last output; return what came of it.

        Where all ranks ended well, and nobody stops the job, they have the job's grace to end by themselves:
        one may be an upload.
        """
        left: list[int] = []
        ended: list[tuple[str, int]] = []
        if self._sampler is not None:
            self._sampler.close()
        statuses = [rank.status for rank in self.ranks if rank.rank != NODE]
        if statuses and not any(statuses):
            until = time.monotonic() + self._grace
            while not self._stopped and time.monotonic() < until and processes.has_children():
                self._handle_events(TICK_MS)
            if not self._stopped and processes.has_children():
                ended = program_names(processes.descendants(os.getpid()))
        if processes.has_children():
            self._signal_all(SIGTERM)
            until = time.monotonic() + timing.LEFTOVER_GRACE_S
            while time.monotonic() < until and processes.has_children():
                self._handle_events(20)
            left = processes.end_descendants(timing.UNKILLABLE_S)
        if self.container is not None:
            left += self.container.end()
        if self._descent is not None and not left:
            self._descent.discard()
        until = time.monotonic() + timing.LATE_OUTPUT_S
        while any(rank.pipes for rank in self.ranks) and time.monotonic() < until:
            self._handle_events(20)
        for outlet in self._outlets():
            outlet.end()
        return {"left": left, "ended": ended}

    def _wait_for_close(self) -> int:
        """Send the remaining frames and wait until the supervisor closes the channel."""
        while self._tethered:
            self._handle_events(TICK_MS)
        return 0

    def _send(self, kind: bytes, fields: Mapping[str, object]) -> None:
        self._queue_output(at_once=True)  # a rank's EXIT must follow its output
        self.channel.send(kind, fields)


def open_log(folder: str, name: str) -> int:
    """Open the log file of a rank or a setup line, for stdout and stderr in order of arrival."""
    return os.open(f"{folder}/logs/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
