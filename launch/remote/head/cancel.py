"""Cancelling a job: the request to its supervisor, and the end of its processes on one node without one.

The request is the file ``cancel`` in the job's folder. Its first line may hold the grace in seconds that the
request wants, the job's own counts where it is empty; its second line why the job is to end.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

from launch.remote.base import job_dir, processes, timing
from launch.remote.base.files import read_regular, replace_file
from launch.remote.base.payloads import CancelAnswer, EndUploadAnswer, ReleaseAnswer, SweepAnswer
from launch.remote.descent import DESCENT, children_of_job
from launch.remote.head.query import lost_nodes

__all__ = ["cancel", "cancel_request", "cancelled_at", "end_upload", "release", "sweep"]

_POLL = 0.05
_LONGEST_S = 365 * 24 * 3600.0
"""The longest grace that fab takes."""
_MOST_RECORDS, _RECORD_BYTES = 1024, 4 << 20
_REMOVED = "its records on the head were removed"


def cancel(job: str, grace: float | None) -> CancelAnswer:
    """Request the job's end; return its state once it has ended, or after 20 s. May be repeated.

    ``within`` is how many seconds its end may take from now, ``lost`` are the nodes that its supervisor could
    not reach. Raise FileNotFoundError when there is no such job.
    """
    folder = job_dir.Folder(job)
    state = folder.state()
    try:
        own = folder.plan().get("grace_s", timing.CANCEL_GRACE_S)
    except job_dir.Unreadable:
        own = timing.CANCEL_GRACE_S
    before = state["state"]
    if before not in job_dir.TERMINAL:
        _request(folder, grace)
        until = time.monotonic() + timing.CANCEL_ANSWER_S
        while state["state"] not in job_dir.TERMINAL and time.monotonic() < until:
            time.sleep(_POLL)
            state = folder.state()
    given = own if grace is None else grace
    lost = lost_nodes(folder)
    return {
        "state": state,
        "before": before,
        "grace": given,
        "within": given + timing.SUPERVISOR_END_S,
        "lost": lost,
    }


def end_upload(job: str) -> EndUploadAnswer:
    """End uploads of an ended job's outputs: a cancelled job's supervisor sends them, or ``fab upload`` does.

    Wait for the end of its supervisor's. Raise FileNotFoundError when there is no such job.
    """
    folder = job_dir.Folder(job)
    supervisor = folder.state()["supervisor"]
    uploading = processes.is_alive(supervisor)
    _request(folder, None)
    until = time.monotonic() + timing.CANCEL_ANSWER_S
    while processes.is_alive(supervisor) and time.monotonic() < until:
        time.sleep(_POLL)
    return {"uploading": uploading}


def release(job: str) -> ReleaseAnswer:
    """Kill a supervisor that did not obey the cancel request; return the job's state, which is LOST then.

    Without a cancel request, or where another process has the supervisor's number by now, do nothing. Raise
    FileNotFoundError when there is no such job.
    """
    folder = job_dir.Folder(job)
    state = folder.state()
    if state["state"] in job_dir.TERMINAL or not os.path.exists(folder.file("cancel")):
        return {"state": state}
    supervisor = state["supervisor"]
    until = time.monotonic() + timing.SUPERVISOR_KILL_S
    while supervisor is not None and processes.is_alive(supervisor) and time.monotonic() < until:
        processes.kill(supervisor["pid"], processes.SIGKILL)
        time.sleep(_POLL)
    if processes.is_alive(supervisor):
        return {"state": folder.state()}
    return {"state": folder.lose(state, "the job's supervisor did not react to the cancel and was ended")}


def _request(folder: job_dir.Folder, grace: float | None) -> None:
    path = folder.file("cancel")
    with suppress(OSError):
        if not stat.S_ISREG(os.lstat(path).st_mode):  # a job put it there, so that nobody cancels it
            os.rename(path, f"{path}.{time.time_ns()}")
    if grace is not None:
        with suppress(OSError):  # a full disk still takes a file without contents
            replace_file(path, f"{grace:g}".encode())
    with open(path, "a", encoding="utf-8"):
        os.utime(path)  # an upload is ended by a request that is newer than its beginning


def cancelled_at(folder: job_dir.Folder) -> int:
    """Return when the job's end was last requested, in nanoseconds; 0 without a request."""
    try:
        return os.stat(folder.file("cancel")).st_mtime_ns
    except OSError:
        return 0


def cancel_request(folder: job_dir.Folder, own: float) -> tuple[float, str] | None:
    """Return grace (without one, the job's ``own``) and reason of the job's cancel request; None without one.

    The removal of the job's records is a request, too: nobody could find and end the job otherwise.
    """
    try:
        grace, _, reason = read_regular(folder.file("cancel")).decode("utf-8", "replace").partition("\n")
    except FileNotFoundError:
        return None if os.path.exists(folder.file("job.json")) else (own, _REMOVED)
    except PermissionError:
        folder.permit()
        return None  # the caller looks again
    except OSError:
        return own, ""  # whoever put something else there wants the job to end
    try:
        seconds = float(grace or own)
    except ValueError:
        return own, reason  # torn, but a request
    return (seconds if 0 <= seconds <= _LONGEST_S else own), reason


def sweep(job: str, grace: float) -> SweepAnswer:
    """End every process of the job on this node: SIGTERM, SIGKILL after ``grace`` seconds.

    They are known by their environment and by the records of runners that were killed. Then kill its runners,
    which would hold its slots for ever where they are stopped; a runner that works exits by itself. ``ended``
    counts what has ended, ``left`` has the pids that SIGKILL did not end.
    """
    seen: set[int] = set()
    busy = time.monotonic()
    kill_at = busy + grace
    while True:
        left, runners = children_of_job(job, _records(job)), processes.runners_of_job(job)
        now = time.monotonic()
        if left and now < kill_at:
            busy = now
        if now > busy + timing.SLOTS_FREE_S:
            for pid in runners:
                processes.kill(pid, processes.SIGKILL)
            seen.update(runners)
        if not (left or runners) or now > kill_at + timing.SUPERVISOR_KILL_S:
            _remove_containers(job)
            left += runners
            return {"ended": len(seen.difference(left)), "left": left}
        for pid in left:
            if now >= kill_at:
                processes.kill(pid, processes.SIGKILL)
            elif pid not in seen:
                processes.kill(pid, processes.SIGTERM)
        seen.update(left)
        time.sleep(_POLL)


def _records(job: str) -> list[bytes]:
    """Return what the job's runners on this node have recorded of their descendants."""
    folder, prefix = job_dir.Folder(job).path, f"{DESCENT}{os.uname().nodename}."
    records: list[bytes] = []
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and len(records) < _MOST_RECORDS:
                with suppress(OSError):
                    records.append(read_regular(os.path.join(folder, name), _RECORD_BYTES))
    return records


def _remove_containers(job: str) -> None:
    """Remove Docker's containers of the job on this node, whose processes may have lost the variable by which
    those of the job are found."""
    if os.path.isdir(job_dir.Folder(job).file(processes.CONTAINERS)):
        from launch.remote.node.runtimes.docker import remove_containers

        remove_containers(job)
