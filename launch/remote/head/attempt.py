"""One launch of a job: starts its runners, merges their output, ends them all when one fails."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from launch.remote.base import frames
from launch.remote.base.paths import temporary_folder, unwritable
from launch.remote.head import outcome
from launch.remote.head.cancel import asked
from launch.remote.head.launcher_output import Words
from launch.remote.head.outcome import Outcome
from launch.remote.head.runners import ssh_start
from launch.remote.head.runners.channel import GOING, READY
from launch.remote.head.runners.mpirun import Mpirun
from launch.remote.head.runners.pending_connections import PendingConnections
from launch.remote.head.runners.runner_events import Hearing
from launch.remote.head.runners.runner_pool import Crew
from launch.remote.head.runners.start_barrier import Muster
from launch.remote.head.shutdown import Stopping
from launch.remote.head.sweep import sweep
from launch.remote.mpi.detect import CannotLaunch

if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.base.records import Taken
    from launch.remote.head.runners.runner_pool import Order

__all__ = ["Attempt"]

_TICK = 0.2
_MOMENT = 0.005
"""Seconds between looks at an mpirun that has closed its output: nothing but looking tells of its exit."""
_WITHOUT_MPIRUN = 2.0
"""Seconds that runners get to tell of their ranks' ends once mpirun is gone."""


class Attempt:
    """Runs what is ordered once. ``on_held`` and ``on_running`` are as in
    :class:`~launch.remote.head.runners.runner_events.Hearing`."""

    def __init__(self, order: Order, on_held: Callable[[], None], on_running: Callable[[str], None]) -> None:
        self._order, self._plan = order, order.plan
        self._crew = Crew(order)
        self._words = Words(self._crew.selector, order.stream)
        self._words.hushed = self._is_over_but_for_mpirun
        self._muster = Muster(order.plan)
        self._stopping = Stopping(self._crew, order.plan["grace_s"])
        self._hearing = Hearing(
            order, self._crew, self._stopping, self._muster, self._words, on_held, on_running
        )
        self._crew.hear = self._hearing.hear
        self._pending: PendingConnections | None = None
        self._overdue: list[int] = []
        self._mpirun_gone: float | None = None
        self._begun = self._beaten = self._looked = time.monotonic()

    @property
    def taken(self) -> Taken:
        """By node, the slots for which nodes refused the job, each with its holder."""
        return self._hearing.taken

    def run(self) -> Outcome | None:
        """How it ended; None when nodes refused it slots that others hold: :attr:`taken`."""
        crew, mpirun_status = self._crew, None
        try:
            self._launch()
            while not self._over():
                self._turn_once()
            if crew.mpirun is not None and not crew.mpirun.runs:
                mpirun_status = crew.mpirun.status
        except CannotLaunch as error:
            return Outcome("FAILED", ssh_start.NOT_FOUND, str(error))
        finally:
            if self._pending is not None:
                self._pending.close()
            crew.close()
            self._hearing.close()
        decided = self._stopping.verdict
        if self.taken and (decided is None or decided.state != "CANCELLED"):
            return None
        if decided is None and mpirun_status and self._ended_by_itself:
            decided = self._hearing.blame(mpirun_status)
        sweep(self._plan, sorted(self._hearing.unswept), crew.silent)
        if decided is None and self._muster.went is None:
            decided = self._unfit()
        if decided is None:
            decided = self._stopping.failures.first or self._judge(mpirun_status)
        decided.ran = bool(crew.started)
        if crew.missed:
            without = f"without {', '.join(crew.missed_nodes)}, lost before"
            decided.reason = f"{decided.reason} ({without})" if decided.reason else without
        return decided

    @property
    def _ended_by_itself(self) -> bool:
        """Whether mpirun ended while ranks ran, of which none has failed, and nobody killed it."""
        was_killed = self._crew.mpirun is not None and self._crew.mpirun.was_killed
        return self._muster.went is not None and self._stopping.failures.first is None and not was_killed

    def _judge(self, mpirun_status: int | None) -> Outcome:
        crew = self._crew
        counted = {rank: crew.names[i] for rank, i in crew.node_of.items() if rank not in crew.missed}
        number = 0 if crew.mpirun is None or mpirun_status is None else crew.mpirun.was_killed
        return outcome.judge(self._order.stream, counted, crew.ended, mpirun_status, number)

    # -- starting ---------------------------------------------------------------------------------

    def _launch(self) -> None:
        crew = self._crew
        if self._plan["kind"] != "mpi":
            crew.to_start = list(range(len(crew.nodes)))
            self._start_some()
            return
        reasons = unwritable(self._order.folder.path, temporary_folder())
        if reasons:  # of which mpirun would say less
            self._muster.unfit(0, reasons)
            return
        crew.mpirun = Mpirun(self._order.folder, self._plan)
        self._pending = PendingConnections(
            crew.mpirun.listener, crew.mpirun.token, crew.selector, self._hearing.take_in
        )
        self._words.listen(crew.mpirun.process.stdout, 0, 1)
        self._words.listen(crew.mpirun.process.stderr, 0, 2)

    def _start_some(self) -> None:
        link = self._crew.start_some()
        while link is not None:
            if link.process is not None:
                self._words.listen(link.process.stderr, link.node, 2)
            link = self._crew.start_some()

    def _is_over_but_for_mpirun(self) -> bool:
        # what it says then is a guess: it blames whichever runner left first
        return self._stopping.verdict is not None and not self._crew.open_links

    @property
    def _is_exiting(self) -> bool:
        return self._crew.mpirun is not None and not (self._crew.open_links or self._words.are_coming)

    # -- the loop ---------------------------------------------------------------------------------

    def _turn_once(self) -> None:
        self._hearing.let_gather()
        for key, _ in self._crew.selector.select(_MOMENT if self._is_exiting else _TICK):
            key.data()
        self._crew.flush()
        self._start_some()
        failure = self._stopping.failures.settled
        if failure is not None and self._stopping.verdict is None:
            self._stopping.fail(failure)
        self._go_or_give_up()
        self._release()
        now = time.monotonic()
        if now - self._beaten >= frames.BEAT_PERIOD:
            self._beaten = now
            self._crew.tell(frames.BEAT)
        if now - self._looked >= _TICK:
            self._looked = now
            if self._pending is not None:
                self._pending.expire(now)
            wish = asked(self._order.folder, self._plan["grace_s"])
            if wish is not None:
                grace, reason = wish
                self._stopping.fail(Outcome("CANCELLED", outcome.CANCELLED, reason), grace)
            self._hearing.heed(now)
            if self._stopping.has_begun:
                self._stopping.press(now, self._hearing.lose)
            else:
                self._look_around(now)

    def _look_around(self, now: float) -> None:
        crew, stopping = self._crew, self._stopping
        limit = self._plan["timeout_s"]
        if limit is not None and self._order.until is not None and now > self._order.until:
            stopping.fail(self._timed_out(limit))
        self._watch_the_start(now)
        for link in crew.fallen_silent():
            crew.silent.add(link.node)
            self._hearing.lose(link, f"no sign of life for {frames.NODE_SILENT:g} s")
        if crew.mpirun is not None and not crew.mpirun.runs:
            self._go_without_mpirun(now)

    def _go_without_mpirun(self, now: float) -> None:
        """mpirun is gone although ranks are missing: they end by its order, or else by ours."""
        if self._mpirun_gone is None:
            self._mpirun_gone = now
        was_killed = self._crew.mpirun is not None and self._crew.mpirun.was_killed
        if was_killed or not self._crew.is_at_work or now - self._mpirun_gone > _WITHOUT_MPIRUN:
            self._stopping.stop()

    def _timed_out(self, limit: float) -> Outcome:
        crew = self._crew
        where = {rank: (crew.node_of[rank], crew.names[crew.node_of[rank]]) for rank in crew.running}
        return outcome.timed_out(limit, self._order.stream, where if crew.ended else None)

    def _watch_the_start(self, now: float) -> None:
        if not self._muster.is_late(now, self._begun):
            return
        crew = self._crew
        takes_long = self._plan["setup"] or self._plan["snapshot"]  # there may be much code to copy
        at_work = crew.greeted_nodes if takes_long and self._muster.went is None else set()
        missing = self._muster.overdue(now, self._begun, at_work, crew.started | crew.missed)
        if missing:
            self._overdue = missing
            crew.lost.update(missing)
            if self._muster.went is None:
                self._stopping.stop()
            else:
                names = ", ".join(crew.names[index] for index in missing)
                words = f"not started within {self._plan['start_limit_s']:g} s: {names}"
                self._stopping.fail(Outcome("FAILED", outcome.LOST_RANK, words))

    def _go_or_give_up(self) -> None:
        """Starts the ranks once every runner is ready, or none once it is known which nodes are unfit."""
        if self._muster.went is not None or self._stopping.has_begun:
            return
        if self._muster.is_complete:
            self._muster.went = time.monotonic()
            late = self._muster.late()
            for link in self._crew.links:
                link.stage = GOING if link.stage == READY else link.stage
                link.send(frames.GO, {str(rank): late[rank] for rank in link.ranks if rank in late})
        elif self._muster.is_hopeless:
            self._stopping.stop()

    def _unfit(self) -> Outcome | None:
        """No rank was started: says which nodes are why; of those that it lacks, mpirun knows no more."""
        mpirun, muster = self._crew.mpirun, self._muster
        if mpirun is not None and not muster.is_known:
            reasons = sweep(self._plan, muster.pending) or mpirun.unfit()
            for index, words in reasons.items():
                muster.unfit(index, [words])
        if not muster.is_known:
            for index in self._overdue:
                muster.unfit(index, [f"did not answer within {self._plan['start_limit_s']:g} s"])
        return muster.outcome(self._order.stream) if muster.is_known else None

    def _release(self) -> None:
        """Lets runners go once no process of the job is left: closing their channel is the sign."""
        if not (self._stopping.has_begun or self._crew.all_ended):
            return
        still = self._crew.open_links
        if all(link.done for link in still):
            for link in still:
                self._crew.drop(link)

    def _over(self) -> bool:
        crew, mpirun = self._crew, self._crew.mpirun
        if self._stopping.cut_off or crew.to_start or crew.open_links:
            return self._stopping.cut_off
        # mpirun would wait for its daemon on a node that says nothing
        return mpirun is None or bool(crew.silent) or not (mpirun.runs or self._words.are_coming)
