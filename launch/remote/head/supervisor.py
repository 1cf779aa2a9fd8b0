"""One job from its turn in the queue to its end, on the job's head, detached from whoever asked for it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from launch.remote.head import outcome as verdict
from launch.remote.head import queue, sweep
from launch.remote.head.attempt import Attempt
from launch.remote.head.cancel import asked
from launch.remote.head.job_state import Course
from launch.remote.head.outcome import Outcome
from launch.remote.head.runners.runner_pool import Order
from launch.remote.head.slot_query import Inquiry
from launch.remote.log.writer import LAUNCHER, StreamWriter
from launch.remote.node import slots

if TYPE_CHECKING:
    from launch.remote.base import job_dir
    from launch.remote.base.records import Plan, Taken

__all__ = ["detach", "supervise"]

_POLL = 0.2
_RESTART_PAUSE = 1.0
"""Seconds between the end of a launch and a restart: what the ranks talked to closes its connections."""
_BUSY_PAUSE = 2.0
"""Seconds, about, between questions to nodes whose slots another head's job holds."""


def detach(folder: job_dir.Folder, plan: Plan) -> None:
    """Puts a supervisor for the job into the background; returns once its state.json is there.

    Raises OSError when it does not come up.
    """
    ready_read, ready_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _become_daemon(folder, keep=ready_write)
                supervise(folder, plan, ready_write)
        finally:
            os._exit(0)
    os.close(ready_write)
    os.waitpid(child, 0)
    answer = os.read(ready_read, 1)
    os.close(ready_read)
    if answer != b"+" and not os.path.exists(folder.file("state.json")):  # which would say why
        log = folder.file("supervisor.log")
        raise OSError(f"the supervisor of job {folder.job} did not come up: see {log} on the head")


def _become_daemon(folder: job_dir.Folder, keep: int) -> None:
    os.chdir(os.path.expanduser("~"))
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder.file("supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, null), (1, null), (2, log)):
        os.dup2(source, target)
    top = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, keep)
    os.closerange(keep + 1, min(top, 65536))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def supervise(folder: job_dir.Folder, plan: Plan, ready: int) -> None:
    """Queues, launches and sees the job to its end; every way out writes a terminal state."""
    course = Course(folder, plan)
    supervisor = _Supervisor(folder, plan, course)
    try:
        outcome = supervisor.run(ready)
    except OSError as error:
        words = f"the head cannot run it: {error.strerror or error}"
        if error.filename:
            words = f"the head cannot keep the job's records: {error.strerror}: {error.filename}"
        outcome = Outcome("FAILED", verdict.LOST_RANK, words)
    except Exception as error:  # noqa: BLE001  whatever it is, the job must not stay RUNNING for ever
        import traceback

        traceback.print_exc()
        outcome = Outcome("FAILED", verdict.LOST_RANK, f"the supervisor failed: {error!r}")
    queue.leave(plan["id"])
    with suppress(FileNotFoundError):  # the job's folder was removed: there is nobody left to read of its end
        course.end(outcome)
    if plan["max_restarts"] and supervisor.has_launched:
        sweep.clear(plan)


class _Supervisor:
    def __init__(self, folder: job_dir.Folder, plan: Plan, course: Course) -> None:
        self._folder, self._plan, self._course = folder, plan, course
        self._job = plan["id"]
        self.has_launched = False
        """Whether nodes may have a working folder of the job."""

    def run(self, ready: int) -> Outcome:
        """How the job ended; a byte goes to ``ready`` once it has a state."""
        plan, course = self._plan, self._course
        queue.enter(plan)
        turn = queue.admit(self._job, plan["port"])
        if turn is None:
            course.queued()
        else:
            course.starting(turn)
        os.write(ready, b"+")
        os.close(ready)
        stream = StreamWriter(self._folder.path)
        try:
            return self._see_through(turn, stream)
        finally:
            stream.close()

    def _see_through(self, turn: queue.Turn | None, stream: StreamWriter) -> Outcome:
        """Launches it, again where that may help; how the last launch ended."""
        plan, course = self._plan, self._course
        was_refused = False
        while True:
            if turn is None:
                waited = self._wait()
                if isinstance(waited, Outcome):
                    return waited
                turn = waited
                if not was_refused:
                    course.starting(turn)
            order = Order(self._folder, plan, turn, stream, course.restarts, course.until)
            result = self._launch(order)
            if not isinstance(result, Outcome):
                removal = slots.removal_among(result)
                if removal is not None:
                    return verdict.not_started(*removal, [])
                was_refused = True
                queue.requeue(self._job, result)
                turn = queue.admit(self._job, plan["port"])  # other slots may be free
                continue
            if not self._may_restart(result):
                return result
            ended = self._ended()
            if ended is not None:
                return self._instead(ended, result)
            words = course.restarting(result)
            stream.forget_tails()  # the next failure's last lines are not this one's
            stream.write(LAUNCHER, 0, 2, words.encode() + b"\n")
            ended = self._pause()
            if ended is not None:
                return ended
            turn = queue.again(self._job, turn.port)

    def _launch(self, order: Order) -> Outcome | Taken:
        """One attempt: how it ended, or the slots of other jobs for which nodes refused it."""

        def held() -> None:
            queue.confirm(self._job)
            self._course.held(order.turn)

        def running(reason: str) -> None:
            self._course.running(order.turn, reason)

        self.has_launched = True
        attempt = Attempt(order, held, running)
        outcome = attempt.run()
        return attempt.taken if outcome is None else outcome

    def _may_restart(self, outcome: Outcome) -> bool:
        """Whether another launch may end better: not when its time was over, nor when no rank ever ran."""
        left = self._plan["max_restarts"] - self._course.restarts
        return left > 0 and outcome.state == "FAILED" and outcome.ran and not outcome.was_timed_out

    def _instead(self, ended: Outcome, failed: Outcome) -> Outcome:
        """The end of a job that was to be launched anew, and why it was not."""
        what = ended.reason or "cancelled"
        ended.reason = f"{what} before restart {self._course.restarts + 1}: {failed.reason}"
        ended.failure, ended.ran = failed.failure, True
        return ended

    def _pause(self) -> Outcome | None:
        """Waits before a restart; how the job ended if it did meanwhile."""
        until = time.monotonic() + _RESTART_PAUSE
        while time.monotonic() < until:
            ended = self._ended()
            if ended is not None:
                return ended
            time.sleep(_POLL)
        return None

    def _ended(self) -> Outcome | None:
        """The end of a job that is not being launched: cancelled, or its time is over."""
        wish = asked(self._folder, self._plan["grace_s"])
        if wish is not None:
            return Outcome("CANCELLED", verdict.CANCELLED, wish[1])
        limit = self._plan["timeout_s"]
        until = self._course.until if self._course.has_begun else None
        if limit is not None and until is not None and time.monotonic() > until:
            return verdict.timed_out(limit)
        return None

    def _wait(self) -> queue.Turn | Outcome:
        """The job's turn when it comes, or how it ended while it waited."""
        ask_at = time.monotonic() + _between_questions()
        inquiry: Inquiry | None = None
        try:
            while True:
                ended = self._ended()
                if ended is not None:
                    if ended.state == "CANCELLED" and not (ended.reason or self._course.restarts):
                        ended.reason = "cancelled before its turn came"
                    return ended
                turn = queue.admit(self._job, self._plan["port"])
                if turn is not None:
                    return turn
                self._course.queued()
                if inquiry is None and time.monotonic() >= ask_at:
                    inquiry = Inquiry(self._plan, queue.refused_by(self._job))
                elif inquiry is not None and inquiry.is_over:
                    taken = inquiry.answer()
                    removal = slots.removal_among(taken)
                    if removal is not None:
                        return verdict.not_started(*removal, [])
                    queue.told(self._job, taken)
                    inquiry, ask_at = None, time.monotonic() + _between_questions()
                    continue
                time.sleep(_POLL)
        finally:
            if inquiry is not None:
                inquiry.answer()


def _between_questions() -> float:
    # not all at once: two jobs with different heads would hold each other up for ever
    return _BUSY_PAUSE * (0.5 + os.urandom(1)[0] / 255)
