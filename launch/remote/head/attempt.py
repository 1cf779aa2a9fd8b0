"""One launch of a job: the loop that reads its channels, asks what follows, and does that.

The state of a launch lies with plain objects, whose methods are given events and return decisions:
:class:`~launch.remote.head.rank_states.RankStates` (the ranks),
:class:`~launch.remote.head.start_barrier.StartBarrier` (what is missing before the first rank),
:class:`~launch.remote.head.node_loss.NodeLoss` (nodes that cannot take part, or no longer) and
:class:`~launch.remote.head.shutdown.Shutdown` (the first outcome, and the grace). Events come from runners
(:mod:`~launch.remote.head.runner_events`), launchers' pipes, the clock and the job's folder. Decisions are
:class:`~launch.remote.head.shutdown.Stop` and :class:`~launch.remote.head.node_loss.GoOn`.
"""

from __future__ import annotations

import selectors
import subprocess
import time

from launch.remote.base import frames, timing
from launch.remote.base.files import temporary_folder, unwritable
from launch.remote.base.processes import SIGTERM
from launch.remote.base.records import BARE, Taken
from launch.remote.head import outcome
from launch.remote.head.cancel import cancel_request
from launch.remote.head.health_report import HealthReport
from launch.remote.head.job_state import JobState, LaunchOrder
from launch.remote.head.node_contents import forget_contents
from launch.remote.head.node_loss import GoOn, NodeLoss
from launch.remote.head.outcome import Outcome
from launch.remote.head.rank_states import RankStates
from launch.remote.head.runner_events import RunnerEvents
from launch.remote.head.runners.channel import Channel
from launch.remote.head.runners.launcher_output import LauncherOutput
from launch.remote.head.runners.mpirun import Mpirun
from launch.remote.head.runners.pending_connections import PendingConnections
from launch.remote.head.runners.runner_pool import RunnerPool
from launch.remote.head.shutdown import (
    CUT_OFF,
    DROP_RUNNERS,
    END_MPIRUN,
    Shutdown,
    Stop,
    start_sweep,
    sweep_nodes,
)
from launch.remote.head.start_barrier import StartBarrier
from launch.remote.log.writer import LAUNCHER, last_lines
from launch.remote.mpi.detect import CannotLaunch

__all__ = ["Attempt"]

_TICK = 0.2
"""Seconds between looks at the clock, the job's folder and mpirun."""
_EXIT_POLL = 0.005
"""Seconds between looks at an mpirun that has closed its output: its exit makes no descriptor ready."""
_GATHER = 0.02
"""Seconds in which more output comes together when only a little came: hundreds of ranks that print now and
then are read in one turn."""
_MUCH = 16 * 1024
"""Bytes at once that show that a runner has more to send than it could."""
_OUTPUT = (frames.OUT, frames.NOTE, frames.TAIL, frames.BEAT, frames.SAMPLE)


class Attempt:
    """One launch of the ordered job on its nodes."""

    def __init__(self, order: LaunchOrder, job_state: JobState) -> None:
        plan = order.plan
        self._order, self._plan = order, plan
        self._begun = self._last_beat = self._last_tick = self._samples_due = time.monotonic()
        self._ranks = RankStates(plan["nodes"])
        self._barrier = StartBarrier(plan, self._begun)
        self._shutdown = Shutdown(plan["grace_s"])
        self._losses = NodeLoss(plan, order.folder, self._ranks, self._barrier, self._shutdown)
        self._pool = RunnerPool(plan, order.slots, order.port, order.restarts)
        self._output = LauncherOutput(self._pool.selector, order.stream)
        self._pending: PendingConnections | None = None
        self._events = RunnerEvents(
            order, job_state, self._pool, self._ranks, self._barrier, self._shutdown, self._losses
        )
        self._sweeps: list[subprocess.Popen[bytes]] = []
        self._overdue: list[int] = []
        """Nodes that were not ready, or did not start their ranks, in time."""
        self._mpirun_gone: float | None = None
        self._mpirun_idle: float | None = None
        """Since when mpirun runs on although every rank has ended."""
        self._has_input = self._is_urgent = self._is_cut_off = False

    @property
    def health(self) -> HealthReport:
        """What looks at the nodes found so far."""
        return self._events.health

    @property
    def networks(self) -> dict[str, str]:
        """By node, the mark of its networks."""
        return self._events.networks

    def run(self) -> Outcome | Taken:
        """Return how it ended or, where nodes refused it slots, which slots other jobs hold by node."""
        mpirun_status = None
        try:
            self._launch()
            while not self._is_over():
                self._run_turn()
            mpirun = self._pool.mpirun
            if mpirun is not None and not mpirun.is_running:
                mpirun_status = mpirun.status
        except CannotLaunch as error:
            return Outcome("FAILED", outcome.NOT_FOUND, str(error))
        finally:
            self._close()
        decided, taken = self._shutdown.outcome, self._events.taken
        if taken and (decided is None or decided.state != "CANCELLED"):
            return taken
        return self._conclude(decided, mpirun_status)

    # -- start and end ------------------------------------------------------------------------------

    def _launch(self) -> None:
        pool = self._pool
        if not self._plan["mpirun"]:
            pool.to_start = list(range(len(self._plan["nodes"])))
            self._start_runners()
            return
        reasons = unwritable(self._order.folder.path, temporary_folder())
        if reasons:  # mpirun's message would not have them
            self._barrier.reject(0, reasons, self._begun)
            return
        mpirun = pool.mpirun = Mpirun(self._order.folder, self._plan)
        if mpirun.choice:
            self._order.stream.write(LAUNCHER, 0, 2, f"{mpirun.choice}\n".encode())
        self._pending = PendingConnections(mpirun.listener, mpirun.token, pool.selector)
        self._output.add(mpirun.process.stdout, 0, 1)
        self._output.add(mpirun.process.stderr, 0, 2)

    def _start_runners(self) -> None:
        for channel in self._pool.start_runners():
            if channel.process is not None:
                self._output.add(channel.process.stderr, channel.node, 2)

    def _is_over(self) -> bool:
        pool, mpirun = self._pool, self._pool.mpirun
        if self._is_cut_off or pool.to_start or pool.open_channels:
            return self._is_cut_off
        # mpirun would wait for its daemon on a silent node
        return mpirun is None or bool(self._losses.silent) or not (mpirun.is_running or self._output.is_open)

    def _close(self) -> None:
        self._events.close_samples()
        if self._pending is not None:
            self._pending.close()
        if self._pool.mpirun is not None and self._pool.mpirun.is_running:
            self._losses.lost.update(range(len(self._plan["nodes"])))  # with its daemons and their ssh
        self._losses.lost |= self._pool.close()
        for process in self._sweeps:
            process.kill()
            process.communicate()

    def _conclude(self, decided: Outcome | None, mpirun_status: int | None) -> Outcome:
        ranks, losses, mpirun = self._ranks, self._losses, self._pool.mpirun
        killed_by = 0 if mpirun is None or mpirun_status is None else mpirun.killed_by
        has_failed = self._shutdown.failures.first is not None
        if decided is None and self._barrier.has_opened and not (has_failed or killed_by):
            decided = losses.find_lost(self._order.stream, mpirun_status)
        finished = {node for node in range(len(ranks.names)) if self._pool.is_finished(node)}
        sweep_nodes(self._plan, losses.to_sweep(finished), losses.silent)
        if decided is None and not self._barrier.has_opened:
            decided = self._find_unfit()
        if decided is None:
            decided = self._shutdown.failures.first or outcome.judge(
                self._order.stream, ranks.expected, ranks.ended, mpirun_status, killed_by
            )
        decided.ran = bool(ranks.started)
        if ranks.dispensed:
            without = f"without {', '.join(ranks.dispensed_nodes)}, lost before"
            decided.reason = f"{decided.reason} ({without})" if decided.reason else without
        return decided

    def _find_unfit(self) -> Outcome | None:
        """Return the outcome of a launch that started no rank; None where no node is found unfit."""
        mpirun, barrier, now = self._pool.mpirun, self._barrier, time.monotonic()
        if mpirun is not None and not barrier.has_rejected:
            reasons = sweep_nodes(self._plan, barrier.pending) or mpirun.unfit_nodes()
            for index, reason in reasons.items():
                barrier.reject(index, [reason], now)
        if not barrier.has_rejected:
            for index in self._overdue:
                barrier.reject(index, [f"did not answer within {self._plan['start_limit_s']:g} s"], now)
        if not barrier.has_rejected:
            return None
        forget_contents(self._plan)
        return barrier.outcome(self._order.stream)

    # -- the loop -----------------------------------------------------------------------------------

    def _run_turn(self) -> None:
        if self._has_input and not self._is_urgent:
            time.sleep(_GATHER)
        self._has_input = self._is_urgent = False
        mpirun_exits = self._pool.mpirun is not None and not (
            self._pool.open_channels or self._output.is_open
        )
        wait_s = max(0.0, min(_TICK, self._samples_due - time.monotonic()))
        for key, _ in self._pool.selector.select(_EXIT_POLL if mpirun_exits else wait_s):
            self._on_readable(key)
        self._pool.flush()
        self._start_runners()
        now = time.monotonic()
        self._samples_due = self._events.write_samples(now)
        failure = self._shutdown.failures.settled(now)
        if failure is not None and self._shutdown.outcome is None:
            self._apply(Stop(failure))
        self._open_barrier(now)
        if self._shutdown.has_begun or self._ranks.all_ended:
            self._events.report_ending()
            self._pool.release_finished()
        if now - self._last_beat >= timing.BEAT_S:
            self._last_beat = now
            self._pool.send_beat()
        if now - self._last_tick >= _TICK:
            self._last_tick = now
            self._on_tick(now)

    def _apply(self, decision: Stop | GoOn | None) -> None:
        if isinstance(decision, Stop):
            is_first = not self._shutdown.has_begun
            grace = self._shutdown.begin(decision, time.monotonic())
            if grace is None:
                return
            has_runners = self._pool.send_stop(grace)
            if is_first and not has_runners and self._pool.mpirun is not None:
                self._pool.mpirun.signal(SIGTERM)
        elif isinstance(decision, GoOn):
            node, grace = decision.node, decision.grace
            if grace is not None:
                for channel in self._pool.channels_of(node):
                    channel.send_stop(grace)
            self._order.stream.write(LAUNCHER, node, 2, decision.message.encode() + b"\n")
            self._events.report_running()
            if grace is None:  # its runner ends what is there unless the runner itself was killed
                self._sweeps.append(start_sweep(self._plan, node, timing.SSH_CONNECT_LOST_S))

    def _open_barrier(self, now: float) -> None:
        """Let the ranks start once every runner is ready; give up once all unfit nodes are known."""
        if self._barrier.has_opened or self._shutdown.has_begun:
            return
        if self._barrier.is_complete and self._events.changed_networks:
            self._apply(Stop(outcome.changed_networks(self._events.changed_networks)))
        elif self._barrier.is_complete:
            self._events.health.write(self._order.stream)
            self._events.clocks.on_go(time.time_ns() // 1000)
            self._pool.send_go(self._barrier.open(now))
        elif self._barrier.is_hopeless(now):
            self._apply(Stop())

    # -- events -------------------------------------------------------------------------------------

    def _on_readable(self, key: selectors.SelectorKey) -> None:
        source = key.data
        if isinstance(source, Channel):
            self._on_channel(source)
        elif isinstance(source, LauncherOutput):
            source.on_readable(key.fd, self._is_output_wanted)
        elif isinstance(source, PendingConnections):
            for connection, hello in source.on_readable(key.fd):
                self._apply(self._events.on_hello(connection, hello, time.monotonic()))

    @property
    def _is_output_wanted(self) -> bool:
        # once all runners are gone, mpirun blames whichever left first
        return self._shutdown.outcome is None or bool(self._pool.open_channels)

    def _on_channel(self, channel: Channel) -> None:
        if not channel.is_open:
            return  # dropped earlier in the same turn
        try:
            received = channel.receive()
            self._has_input = True
            self._is_urgent |= not channel.is_open or channel.received >= _MUCH
            for kind, payload in received:
                self._is_urgent |= kind not in _OUTPUT
                self._apply(self._events.on_frame(channel, kind, payload, time.monotonic()))
        except frames.ProtocolError as error:
            self._lose(channel, str(error))
            return
        if not channel.is_open:
            self._pool.forget(channel)
            self._on_channel_end(channel)

    def _on_channel_end(self, channel: Channel) -> None:
        """Count the node as lost unless all its ranks' ends are known."""
        is_expected = channel.is_greeted and not channel.unended
        if channel.is_done or self._events.taken or is_expected:
            return
        why = "its runner was killed, or the node is gone"
        if channel.process is not None:
            channel.wait(timing.SSH_LAST_WORDS_S)
            self._output.read_all(self._is_output_wanted)
            lines = last_lines(self._order.stream.tail(LAUNCHER, channel.node), 3)
            why = "; ".join(lines) or (channel.login and channel.login.problem) or why
        self._apply(self._losses.on_lost(channel.node, why, time.monotonic()))

    def _lose(self, channel: Channel, why: str) -> None:
        """Drop a runner that has not reported everything, and count its node as lost."""
        self._pool.drop(channel)
        self._apply(self._losses.on_lost(channel.node, why, time.monotonic()))

    # -- what only a look finds ---------------------------------------------------------------------

    def _on_tick(self, now: float) -> None:
        if self._pending is not None:
            self._pending.expire(now)
        request = cancel_request(self._order.folder, self._plan["grace_s"])
        if request is not None:
            grace, reason = request
            self._apply(Stop(Outcome("CANCELLED", outcome.CANCELLED, reason), grace))
        for node in self._losses.due_nodes(now):
            self._apply(self._losses.on_due(node, now))
        if self._shutdown.has_begun:
            self._enforce_grace(now)
            return
        self._on_idle_mpirun(now)
        limit = self._plan["timeout_s"]
        if limit is not None and self._order.deadline is not None and now > self._order.deadline:
            self._apply(Stop(self._timed_out(limit)))
        self._on_late_start(now)
        self._apply(self._events.hangs.on_tick(now))
        self._apply(self._losses.on_tick(now))
        for channel in self._pool.silent_channels(now):
            self._losses.silent.add(channel.node)
            self._lose(channel, f"no sign of life for {timing.NODE_SILENT_S:g} s")
        if self._pool.mpirun is not None and not self._pool.mpirun.is_running:
            self._on_mpirun_end(now)

    def _on_idle_mpirun(self, now: float) -> None:
        """Wait no longer for an mpirun that does not exit after the last rank: the ranks' ends are known."""
        mpirun = self._pool.mpirun
        if mpirun is None or not self._ranks.all_ended or self._pool.open_channels or not mpirun.is_running:
            return
        if self._mpirun_idle is None:
            self._mpirun_idle = now
        elif now - self._mpirun_idle > timing.MPIRUN_EXIT_S:
            line = f"mpirun did not exit within {timing.MPIRUN_EXIT_S:g} s of the last rank, and was killed\n"
            self._order.stream.write(LAUNCHER, 0, 2, line.encode())
            self._is_cut_off = True

    def _enforce_grace(self, now: float) -> None:
        """Give up, step by step, what outlived the grace."""
        step = self._shutdown.escalation(now)
        if step >= DROP_RUNNERS:
            for channel in self._pool.open_channels:
                if not channel.is_done:
                    self._lose(channel, "its processes did not end")
        if step >= END_MPIRUN and self._pool.mpirun is not None:
            self._pool.mpirun.signal(SIGTERM)
        self._is_cut_off = step >= CUT_OFF

    def _on_late_start(self, now: float) -> None:
        if not self._barrier.is_late(now):
            return
        ranks, at_work = self._ranks, set()
        has_image = self._plan.get("environment", BARE)["kind"] == "image"
        if self._plan["setup"] or self._plan["snapshot"] or has_image:  # there may be much to copy or load
            at_work = ranks.nodes_covered_by(self._pool.greeted_ranks)
        missing = self._barrier.overdue(now, at_work, ranks.started | ranks.dispensed)
        if not missing:
            return
        self._overdue = missing
        self._losses.lost.update(missing)
        if self._barrier.has_opened:
            names = ", ".join(ranks.names[index] for index in missing)
            reason = f"not started within {self._plan['start_limit_s']:g} s: {names}"
            self._apply(Stop(Outcome("FAILED", outcome.LOST_RANK, reason)))
        else:
            self._apply(Stop())

    def _on_mpirun_end(self, now: float) -> None:
        """End the ranks that mpirun has left behind, once its own order to end had its time to arrive."""
        if self._mpirun_gone is None:
            self._mpirun_gone = now
        was_killed = self._pool.mpirun is not None and self._pool.mpirun.killed_by
        if was_killed or not self._pool.is_at_work or now - self._mpirun_gone > timing.WITHOUT_MPIRUN_S:
            self._apply(Stop())

    def _timed_out(self, limit: float) -> Outcome:
        running = self._running() if self._ranks.ended else None
        return outcome.timed_out(limit, self._order.stream, running)

    def _running(self) -> dict[int, tuple[int, str]]:
        """Return the ranks that run, each with its node's index and name."""
        ranks = self._ranks
        return {rank: (ranks.node_of[rank], ranks.names[ranks.node_of[rank]]) for rank in ranks.running}
