"""A request to a job's supervisor to look at the job's ranks: the file ``debug`` in the job's folder.

The answer is ``debug.json`` there. What a supervisor finds before it ends a silent job is ``hang.json``.
"""

from __future__ import annotations

import json
import os
import time

from launch.remote.base import job_dir, timing
from launch.remote.base.files import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from launch.remote.debug.debug_records import DebugAnswer

__all__ = ["ANSWER", "HANG", "NotDebugged", "read_request", "request_debug"]

REQUEST, ANSWER, HANG = "debug", "debug.json", "hang.json"
_POLL = 0.05
_LONGEST = 4096


class NotDebugged(Exception):
    """Why nothing is known of a job's ranks."""


def request_debug(job: str, py_spy: str) -> DebugAnswer:
    """Return what the job's ranks do; of a job that was ended because it hung, what they did then.

    Raise :class:`NotDebugged`, and FileNotFoundError when there is no such job.
    """
    folder = job_dir.Folder(job)
    state = folder.state()
    if state["state"] in job_dir.TERMINAL:
        found: DebugAnswer | None = _read(folder.file(HANG))
        if found is None:
            why = "its ranks have ended; with --hang-after, what they did before is kept"
            raise NotDebugged(f"job {job} is {state['state']}: {why}")
        return found
    if state["state"] != "RUNNING":
        raise NotDebugged(
            f"job {job} is {state['state']}, its ranks do not run yet: {state['reason'] or 'it starts'}"
        )
    request, asked = os.urandom(8).hex(), time.time()
    replace_file(
        folder.file(REQUEST), json.dumps({"id": request, "py_spy": py_spy}).encode(), outlives_machine=False
    )
    until = time.monotonic() + timing.DEBUG_STEP_S
    while time.monotonic() < until:
        time.sleep(_POLL)
        answer: DebugAnswer | None = _read(folder.file(ANSWER))
        if answer is not None and (answer["request"] == request or _began(answer) >= asked):
            return answer  # also where another request has replaced this one: its look is as new
        state = folder.state()
        if state["state"] in job_dir.TERMINAL:
            why = f"{state['state']}, {state['reason']}" if state["reason"] else state["state"]
            raise NotDebugged(f"job {job} ended meanwhile: {why}")
    raise NotDebugged(f"the supervisor of job {job} did not answer within {timing.DEBUG_STEP_S:g} s")


def _began(answer: DebugAnswer) -> float:
    """Return when the look of an answer began, in Unix seconds."""
    return answer["time"] - answer["seconds"]


def read_request(folder: job_dir.Folder) -> tuple[str, str] | None:
    """Return the newest request's id, and the path of py-spy that it names; None without one."""
    found = _read(folder.file(REQUEST), _LONGEST)
    if not (
        isinstance(found, dict) and isinstance(found.get("id"), str) and isinstance(found.get("py_spy"), str)
    ):
        return None
    return found["id"], found["py_spy"]


def _read(path: str, most: int = -1) -> Any:
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(most))
    except (OSError, ValueError, RecursionError):
        return None
