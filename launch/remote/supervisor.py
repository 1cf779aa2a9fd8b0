"""One job from its turn in the queue to its end, on the job's head, detached from whoever asked for it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from launch.remote import jobs, turns
from launch.remote.attempt import Attempt
from launch.remote.inquiry import Inquiry
from launch.remote.records import StreamWriter
from launch.remote.verdict import CANCELLED, LOST_RANK, Outcome

__all__ = ["detach", "supervise"]

_POLL = 0.2
_OUT_OF_QUEUE: dict[str, Any] = {"place": None, "waits_for": []}
_BUSY_PAUSE = 2.0
"""Seconds, about, between questions to nodes whose slots another head's job holds."""


def detach(folder: jobs.Folder, plan: dict[str, Any]) -> None:
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
    if answer != b"+":
        raise OSError(f"the supervisor did not come up, see {folder.file('supervisor.log')} on the head")


def _become_daemon(folder: jobs.Folder, keep: int) -> None:
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


def supervise(folder: jobs.Folder, plan: dict[str, Any], ready: int) -> None:
    """Queues, launches and sees the job to its end; every way out writes a terminal state."""
    state: dict[str, Any] = {
        "job": plan["id"],
        "name": plan["name"],
        "kind": plan["kind"],
        "display_name": plan["display_name"],
        "experiment": plan["experiment"],
        "description": plan["description"],
        "tags": plan["tags"],
        "state": "QUEUED",
        "reason": "",
        "exit_status": None,
        "created": time.time(),
        "started": None,
        "ended": None,
        "port": None,
        "nodes": [node["name"] for node in plan["nodes"]],
        "ranks": sum(len(node["ranks"]) for node in plan["nodes"]),
        "failure": None,
        "restarts": 0,
        "place": None,
        "waits_for": [],
        "supervisor": jobs.identity(os.getpid()),
    }
    outcome: Outcome | None = None
    was_refused = False
    try:
        turns.enter(plan)
        turn = turns.admit(plan["id"], plan["port"])
        if turn is None:
            _queued(folder, plan, state)
        else:
            _starting(folder, state, turn)
        os.write(ready, b"+")
        os.close(ready)
        stream = StreamWriter(folder.file("stream.log"))
        while outcome is None:
            if turn is None:
                turn = _wait(folder, plan, state)
                if turn is None:
                    outcome = Outcome("CANCELLED", CANCELLED, "cancelled before its turn came")
                    break
                if not was_refused:
                    _starting(folder, state, turn)
            refused = _launch(folder, plan, state, turn, stream)
            if isinstance(refused, Outcome):
                outcome = refused
            else:
                was_refused = True
                turns.requeue(plan["id"], refused)
                turn = turns.admit(plan["id"], plan["port"])  # other slots may be free
    except Exception as error:  # noqa: BLE001  whatever it is, the job must not stay RUNNING for ever
        import traceback

        traceback.print_exc()
        outcome = Outcome("FAILED", LOST_RANK, f"the supervisor failed: {error!r}")
    turns.leave(plan["id"])
    if outcome.failure is not None:
        folder.event("failure", **outcome.failure)
    state.update(_OUT_OF_QUEUE)
    state.update(
        state=outcome.state,
        exit_status=outcome.exit_status,
        reason=outcome.reason,
        failure=outcome.failure,
        ended=time.time(),
    )
    folder.write_state(state)


def _launch(
    folder: jobs.Folder, plan: dict[str, Any], state: dict[str, Any], turn: turns.Turn, stream: StreamWriter
) -> Outcome | turns.Taken:
    """One attempt: how it ended, or the slots of other jobs for which nodes refused it."""

    def held() -> None:
        turns.confirm(plan["id"])
        if state["state"] != "STARTING":  # it has waited for another head's job: only now is that over
            _starting(folder, state, turn)

    def running() -> None:
        state.update(state="RUNNING", port=turn.port)
        folder.write_state(state)

    attempt = Attempt(folder, plan, turn, stream, held, running)
    outcome = attempt.run()
    return attempt.taken if outcome is None else outcome


def _starting(folder: jobs.Folder, state: dict[str, Any], turn: turns.Turn) -> None:
    state.update(_OUT_OF_QUEUE, state="STARTING", reason="", port=turn.port, started=time.time())
    folder.write_state(state)


def _queued(folder: jobs.Folder, plan: dict[str, Any], state: dict[str, Any]) -> None:
    """Says what the job waits for, once for as long as that is the same."""
    wait = turns.waiting_for(plan["id"])
    told = {"place": wait.place, "waits_for": wait.jobs}
    told["reason"] = "waits for " + (", ".join(wait.words) or "its turn")
    if state["state"] != "QUEUED" or told != {key: state[key] for key in told}:
        state.update(told, state="QUEUED", started=None)
        folder.write_state(state)


def _wait(folder: jobs.Folder, plan: dict[str, Any], state: dict[str, Any]) -> turns.Turn | None:
    """The job's turn when it comes; None once somebody cancels it."""
    ask_at = time.monotonic() + _pause()
    inquiry: Inquiry | None = None
    while True:
        if os.path.exists(folder.file("cancel")):
            if inquiry is not None:
                inquiry.answer()
            return None
        turn = turns.admit(plan["id"], plan["port"])
        if turn is not None:
            if inquiry is not None:
                inquiry.answer()
            return turn
        _queued(folder, plan, state)
        if inquiry is None and time.monotonic() >= ask_at:
            inquiry = Inquiry(plan, turns.refused_by(plan["id"]))
        elif inquiry is not None and inquiry.is_over:
            turns.told(plan["id"], inquiry.answer())
            inquiry, ask_at = None, time.monotonic() + _pause()
            continue
        time.sleep(_POLL)


def _pause() -> float:
    # not all at once: two jobs with different heads would hold each other up for ever
    return _BUSY_PAUSE * (0.5 + os.urandom(1)[0] / 255)
