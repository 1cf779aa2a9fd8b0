"""The supervisor of one job, from its place in the queue to its end: a daemon on the job's head."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from launch.remote.base import job_dir, timing
from launch.remote.base.records import Plan, Taken, UploadEvent, UploadRecord
from launch.remote.head import outcome, queue
from launch.remote.head.attempt import Attempt
from launch.remote.head.cancel import cancel_request, cancelled_at
from launch.remote.head.job_state import JobState, LaunchOrder
from launch.remote.head.outcome import Outcome
from launch.remote.head.queue import SlotQuery
from launch.remote.head.runners.runner_spec import promises_infiniband
from launch.remote.head.shutdown import clear_work_dirs
from launch.remote.head.uploads import PeriodicUpload, arrival, no_upload, note_kept, upload_outputs
from launch.remote.log.writer import LAUNCHER, StreamWriter

__all__ = ["detach", "supervise"]

_POLL = 0.2


def detach(folder: job_dir.Folder, plan: Plan) -> None:
    """Start a supervisor for the job in the background; return once its state.json is there. Raise OSError
    when it does not start."""
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
    if answer != b"+" and not os.path.exists(folder.file("state.json")):  # which has the reason
        log = folder.file("supervisor.log")
        raise OSError(f"the supervisor of job {folder.job} did not start: see {log} on the head")


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
    """Queue, launch and restart the job to its end; write a terminal state whatever happens."""
    state = JobState(folder, plan)
    supervisor = _Supervisor(folder, plan, state)
    try:
        result = supervisor.run(ready)
    except OSError as error:
        reason = f"the head cannot run it: {error.strerror or error}"
        if error.filename:
            reason = f"the head cannot keep the job's records: {error.strerror}: {error.filename}"
        result = Outcome("FAILED", outcome.LOST_RANK, reason)
    except Exception as error:  # noqa: BLE001  whatever it is, the job must not stay RUNNING for ever
        import traceback

        traceback.print_exc()
        result = Outcome("FAILED", outcome.LOST_RANK, f"the supervisor failed: {error!r}")
    with suppress(FileNotFoundError):  # the job's folder was removed: its end has no reader
        _end(folder, plan, state, result)
    queue.leave(plan["id"])
    if plan["max_restarts"] and supervisor.has_launched:
        clear_work_dirs(plan)


def _end(folder: job_dir.Folder, plan: Plan, state: JobState, result: Outcome) -> None:
    """Record how the job ended, its outputs in storage where they are to go there.

    Its nodes are not idle, nor free for others, before the upload has ended. A job that was cancelled has
    ended for whoever waits before that.
    """
    uploads = plan.get("uploads", []) if result.ran else []
    event = None
    if uploads and result.state != "CANCELLED":
        state.set_uploading(uploads, result)
        event = _upload(folder, plan, uploads)
        state.set_uploaded(event)
        if event["errors"]:
            result = outcome.without_outputs(result)
        result.reason = "; ".join(filter(None, (result.reason, arrival(plan["id"], event))))
    if not uploads:
        queue.leave(plan["id"])
    state.set_ended(result, uploads if event is None else None)
    if uploads:
        note_kept(plan["id"], uploads, event or _upload(folder, plan, uploads))


def _upload(folder: job_dir.Folder, plan: Plan, uploads: list[UploadRecord]) -> UploadEvent:
    """Upload the outputs until somebody cancels the job, once more if it is cancelled; return the event."""
    before = cancelled_at(folder)
    try:
        return upload_outputs(
            folder, plan, uploads, lambda: cancelled_at(folder) != before, queue.slots_of(folder.job)
        )
    except OSError as error:
        return no_upload(folder, plan, uploads, str(error))
    except Exception as error:  # noqa: BLE001  as in supervise()
        import traceback

        traceback.print_exc()
        return no_upload(folder, plan, uploads, f"the upload failed: {error!r}")


class _Supervisor:
    def __init__(self, folder: job_dir.Folder, plan: Plan, state: JobState) -> None:
        self._folder, self._plan, self._state = folder, plan, state
        self._job = plan["id"]
        self._is_probed = self._is_proven_again = False
        self._networks: dict[str, str] = {}
        self.has_launched = False
        """Whether nodes may have a working folder of the job."""

    def run(self, ready: int) -> Outcome:
        """Return how the job ended; write a byte to ``ready`` once it has a state."""
        plan, state = self._plan, self._state
        state.record_stages()
        queue.enter(plan)
        given = queue.admit(self._job, plan["port"])
        if given is None:
            state.set_queued()
        else:
            state.set_starting(given.port)
        os.write(ready, b"+")
        os.close(ready)
        stream = self._open_stream()
        try:
            return self._run_to_end(given, stream)
        finally:
            stream.close()

    def _open_stream(self) -> StreamWriter:
        """Return the stream, one that checks NCCL's lines where they shall say InfiniBand."""
        if not promises_infiniband(self._plan):
            return StreamWriter(self._folder.path)
        from launch.remote.probe.rank_stream import RankStream  # most jobs do without it

        return RankStream(self._folder, self._plan)

    def _run_to_end(self, given: queue.Allocation | None, stream: StreamWriter) -> Outcome:
        """Launch the job, and again where that may help; return how the last launch ended."""
        plan, state = self._plan, self._state
        was_refused = False
        while True:
            if given is None:
                waited = self._wait()
                if isinstance(waited, Outcome):
                    return waited
                given = waited
                if not was_refused:
                    state.set_starting(given.port)
            self.has_launched = True
            order = LaunchOrder(
                self._folder,
                plan,
                given.slots,
                given.port,
                stream,
                state.restarts,
                state.deadline,
                self._networks,
            )
            result, order = self._probe(order)
            if result is None:
                state.set_probed()
                with PeriodicUpload(self._folder, plan):
                    result = Attempt(order, state).run()
            if not isinstance(result, Outcome):
                refusal = queue.refusal_among(result, state.created)
                if refusal is not None:
                    return outcome.not_started(*refusal, [])
                was_refused = True
                queue.requeue(self._job, result)
                given = queue.admit(self._job, plan["port"])  # other slots may be free
                continue
            if result.is_unproven and not self._is_proven_again:
                self._prove_again(result, stream)
                continue
            if not self._may_restart(result):
                return result
            ended = self._ended()
            if ended is not None:
                return self._ended_before_restart(ended, result)
            reason = state.set_restarting(result)
            stream.forget_tails()  # the next failure's last lines are not this one's
            stream.write(LAUNCHER, 0, 2, reason.encode() + b"\n")
            ended = self._pause()
            if ended is not None:
                return ended
            given = queue.readmit(self._job, given.port)

    def _probe(self, order: LaunchOrder) -> tuple[Outcome | Taken | None, LaunchOrder]:
        """Prove the way between the nodes before the first launch; return what keeps the job from that, and
        the order for it."""
        is_wanted = promises_infiniband(self._plan) and self._plan["probe"]["mode"] != "ranks"
        if self._is_probed or not is_wanted:
            return None, order
        from launch.remote.head.probe import after_look, probe_transport  # one job in many needs it

        probed = probe_transport(order, self._state)
        self._is_probed, self._networks = probed.kept is None, probed.networks
        order = order._replace(networks=probed.networks)
        return probed.kept, after_look(order) if probed.looked else order

    def _prove_again(self, result: Outcome, stream: StreamWriter) -> None:
        """Forget the proof that does not hold any more, so that the next launch probes."""
        from launch.remote.probe import proven_nodes  # one job in many needs it

        self._is_proven_again, self._is_probed, self._networks = True, False, {}
        proven_nodes.forget(self._plan)
        stream.write(LAUNCHER, 0, 2, f"{result.reason}: it is proven again\n".encode())

    def _may_restart(self, result: Outcome) -> bool:
        """Return whether a restart may end better: not when the job's time was over, nor when no rank ran."""
        left = self._plan["max_restarts"] - self._state.restarts
        return left > 0 and result.state == "FAILED" and result.ran and not result.was_timed_out

    def _ended_before_restart(self, ended: Outcome, failed: Outcome) -> Outcome:
        """Return the outcome of a job that ended before the restart after a failure."""
        what = ended.reason or "cancelled"
        ended.reason = f"{what} before restart {self._state.restarts + 1}: {failed.reason}"
        ended.failure, ended.ran = failed.failure, True
        return ended

    def _pause(self) -> Outcome | None:
        """Wait before a restart; return how the job ended if it did meanwhile."""
        until = time.monotonic() + timing.RESTART_PAUSE_S
        while time.monotonic() < until:
            ended = self._ended()
            if ended is not None:
                return ended
            time.sleep(_POLL)
        return None

    def _ended(self) -> Outcome | None:
        """Return the outcome of a job that ended between launches: cancelled, or its time is over."""
        request = cancel_request(self._folder, self._plan["grace_s"])
        if request is not None:
            return Outcome("CANCELLED", outcome.CANCELLED, request[1])
        limit = self._plan["timeout_s"]
        deadline = self._state.deadline if self._state.has_begun else None
        if limit is not None and deadline is not None and time.monotonic() > deadline:
            return outcome.timed_out(limit)
        return None

    def _wait(self) -> queue.Allocation | Outcome:
        """Wait in the queue; return what the job was given, or how it ended while it waited."""
        query_at = time.monotonic() + _query_pause()
        query: SlotQuery | None = None
        try:
            while True:
                ended = self._ended()
                if ended is not None:
                    if ended.state == "CANCELLED" and not (ended.reason or self._state.restarts):
                        ended.reason = "cancelled before its turn came"
                    return ended
                given = queue.admit(self._job, self._plan["port"])
                if given is not None:
                    return given
                self._state.set_queued()
                if query is None and time.monotonic() >= query_at:
                    query = SlotQuery(self._plan, queue.refusing_nodes(self._job))
                elif query is not None and query.is_over:
                    taken = query.result()
                    refusal = queue.refusal_among(taken, self._state.created)
                    if refusal is not None:
                        return outcome.not_started(*refusal, [])
                    queue.set_taken(self._job, taken)
                    query, query_at = None, time.monotonic() + _query_pause()
                    continue
                time.sleep(_POLL)
        finally:
            if query is not None:
                query.result()


def _query_pause() -> float:
    # not all at once: two jobs with different heads would hold each other up for ever
    return timing.BUSY_PAUSE_S * (0.5 + os.urandom(1)[0] / 255)
