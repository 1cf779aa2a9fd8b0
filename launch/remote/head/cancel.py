"""Ending a job on request: the word to its supervisor, and the job's processes on one node without any.

The word is the file ``cancel`` in the job's folder. It may hold the grace in seconds that whoever asks wants,
the job's own counts where it is empty; and in a second line why the job is to end.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from launch.remote.base import job_dir, processes
from launch.remote.base.whole_file import replace_file
from launch.remote.head.query import lost_nodes

if TYPE_CHECKING:
    from launch.remote.base.payloads import CancelAnswer, ReleaseAnswer, SweepAnswer

__all__ = ["asked", "cancel", "release", "sweep"]

_PATIENCE = 20.0
"""Seconds one question takes at most: who asks asks again, also when the connection broke in between."""
_SLACK = 30.0
"""Seconds beside the grace that a supervisor needs at most: its last looks at mpirun and at silent nodes."""
_GRACE = 10.0
"""Seconds that a job is taken to give its processes where its plan cannot be read."""
_POLL = 0.05
_REMOVED = "its records on the head were removed"
_DIE_WITHIN = 4.0
_LEAVE_WITHIN = 1.0
"""Seconds that a runner gets to see that its ranks have ended."""


def cancel(job: str, grace: float | None) -> CancelAnswer:
    """Asks for the job's end and tells its state once it has ended, or after 20 s; may be repeated.

    ``before`` is the state it was in, ``grace`` what its processes get, ``within`` how many seconds its end
    may take from now, ``lost`` the nodes that its supervisor could not reach. One that has ended
    stays as it is. Raises FileNotFoundError when there is no such job.
    """
    folder = job_dir.Folder(job)
    state = folder.state()
    try:
        own = folder.plan().get("grace_s", _GRACE)
    except job_dir.Unreadable:
        own = _GRACE
    before = state["state"]
    if before not in job_dir.TERMINAL:
        _ask(folder, grace)
        until = time.monotonic() + _PATIENCE
        while state["state"] not in job_dir.TERMINAL and time.monotonic() < until:
            time.sleep(_POLL)
            state = folder.state()
    given = own if grace is None else grace
    lost = lost_nodes(folder)
    return {"state": state, "before": before, "grace": given, "within": given + _SLACK, "lost": lost}


def release(job: str) -> ReleaseAnswer:
    """Ends a supervisor that did not heed the wish that its job end: the job is LOST then and holds nothing.

    For when no node has anything of the job any more. ``state`` is the job's; where nobody has asked for its
    end, or another process has the supervisor's number by now, nothing is done. Raises FileNotFoundError when
    there is no such job.
    """
    folder = job_dir.Folder(job)
    state = folder.state()
    if state["state"] in job_dir.TERMINAL or not os.path.exists(folder.file("cancel")):
        return {"state": state}
    supervisor = state["supervisor"]
    until = time.monotonic() + _DIE_WITHIN
    while supervisor is not None and job_dir.is_alive(supervisor) and time.monotonic() < until:
        processes.kill(supervisor["pid"], processes.SIGKILL)
        time.sleep(_POLL)
    if job_dir.is_alive(supervisor):
        return {"state": folder.state()}
    return {"state": folder.lose(state, "the job's supervisor did not react to the cancel and was ended")}


def _ask(folder: job_dir.Folder, grace: float | None) -> None:
    asked = folder.file("cancel")
    if grace is not None:
        with suppress(OSError):  # a full disk still takes a file without contents
            replace_file(asked, f"{grace:g}".encode())
    with open(asked, "a", encoding="utf-8"):
        return


def asked(folder: job_dir.Folder, own: float) -> tuple[float, str] | None:
    """None until somebody asks for the job's end; then the seconds between SIGTERM and SIGKILL, ``own`` being
    the job's, and why, if that is said.

    Whoever removes the job's records asks for its end too: nobody could find and end it otherwise.
    """
    try:
        with open(folder.file("cancel"), encoding="utf-8") as file:
            grace, _, reason = file.read().partition("\n")
    except FileNotFoundError:
        return None if os.path.exists(folder.file("job.json")) else (own, _REMOVED)
    except PermissionError:
        folder.permit()
        return None  # it is looked for again
    try:
        return float(grace or own), reason
    except ValueError:
        return own, reason  # torn: the wish itself counts


def sweep(job: str, grace: float) -> SweepAnswer:
    """Ends whatever carries the job's id on this node: SIGTERM, SIGKILL after ``grace`` seconds.

    Then its runners, which hold its slots and would hold them for ever where they are stopped: one that works
    leaves by itself. ``ended`` counts what is gone, ``left`` has the pids that even SIGKILL did not end.
    """
    seen: set[int] = set()
    busy = time.monotonic()
    kill_at = busy + grace
    while True:
        left, runners = processes.children_of_job(job), processes.runners_of_job(job)
        now = time.monotonic()
        if left and now < kill_at:
            busy = now
        if now > busy + _LEAVE_WITHIN:
            for pid in runners:
                processes.kill(pid, processes.SIGKILL)
            seen.update(runners)
        if not (left or runners) or now > kill_at + _DIE_WITHIN:
            left += runners
            return {"ended": len(seen.difference(left)), "left": left}
        for pid in left:
            if now >= kill_at:
                processes.kill(pid, processes.SIGKILL)
            elif pid not in seen:
                processes.kill(pid, processes.SIGTERM)
        seen.update(left)
        time.sleep(_POLL)
