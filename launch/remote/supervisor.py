"""One job from its turn in the queue to its end, on the job's head, detached from whoever asked for it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from launch.remote import jobs, turns
from launch.remote.attempt import Attempt
from launch.remote.records import StreamWriter
from launch.remote.verdict import CANCELLED, LOST_RANK, Outcome

__all__ = ["detach", "supervise"]

_POLL = 0.2
_BUSY_PAUSE = 2.0
"""Seconds before slots that another head's job holds are asked for again."""


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
        "supervisor": jobs.identity(os.getpid()),
    }
    outcome: Outcome | None = None
    try:
        turns.enter(plan)
        turn = turns.admit(plan["id"], plan["port"])
        if turn is None:
            state["reason"] = "waits for " + ", ".join(turns.waiting_for(plan["id"]))
            folder.write_state(state)
        else:
            _starting(folder, state, turn)
        os.write(ready, b"+")
        os.close(ready)
        stream = StreamWriter(folder.file("stream.log"))
        while outcome is None:
            if turn is None:
                turn = _wait(folder, plan)
                if turn is None:
                    outcome = Outcome("CANCELLED", CANCELLED, "cancelled before its turn came")
                    break
                _starting(folder, state, turn)
            attempt = Attempt(folder, plan, turn, stream, lambda: _running(folder, state))
            outcome = attempt.run()
            if outcome is None:
                state.update(state="QUEUED", reason=f"waits for {attempt.held_by}", started=None)
                folder.write_state(state)
                turns.requeue(plan["id"])
                turn = None
                # not all at once: two jobs with different heads would hold each other up for ever
                time.sleep(_BUSY_PAUSE * (0.5 + os.urandom(1)[0] / 255))
    except Exception as error:  # noqa: BLE001  whatever it is, the job must not stay RUNNING for ever
        import traceback

        traceback.print_exc()
        outcome = Outcome("FAILED", LOST_RANK, f"the supervisor failed: {error!r}")
    turns.leave(plan["id"])
    state.update(
        state=outcome.state,
        exit_status=outcome.exit_status,
        reason=outcome.reason,
        failure=outcome.failure,
        ended=time.time(),
    )
    folder.write_state(state)


def _starting(folder: jobs.Folder, state: dict[str, Any], turn: turns.Turn) -> None:
    state.update(state="STARTING", reason="", port=turn.port, started=time.time())
    folder.write_state(state)


def _running(folder: jobs.Folder, state: dict[str, Any]) -> None:
    state.update(state="RUNNING")
    folder.write_state(state)


def _wait(folder: jobs.Folder, plan: dict[str, Any]) -> turns.Turn | None:
    """The job's turn when it comes; None once somebody cancels it."""
    while True:
        if os.path.exists(folder.file("cancel")):
            return None
        turn = turns.admit(plan["id"], plan["port"])
        if turn is not None:
            return turn
        time.sleep(_POLL)
