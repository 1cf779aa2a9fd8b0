"""What the head tells of its jobs: all of them, one in full, and when one ends.

There is no index of them: five hundred ``state.json`` are read in some ten milliseconds, and what is read is
what is so.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from launch.remote.base import job_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["listing", "lost_nodes", "report", "states_to_the_end"]

_POLL = 0.05
_OF_PLAN = ("command", "grace_s", "max_restarts", "snapshot", "timeout_s")
"""What is told of the plan; variables may hold secrets."""
_OF_AN_END = {"rank", "node", "status", "signal", "stopped", "attempt"}


def listing(last: int | None) -> dict[str, Any]:
    """Every job that has not ended, and the ``last`` of those that have (None: all), oldest first.

    ``left_out`` counts the ended ones that are not among them.
    """
    states = job_dir.all_jobs()
    ended = [state for state in states if state["state"] in job_dir.TERMINAL]
    left_out = 0 if last is None else max(0, len(ended) - last)
    old = {id(state) for state in ended[:left_out]}
    shown = [_with_wish(job_dir.Folder(state["job"]), state) for state in states if id(state) not in old]
    return {"jobs": shown, "left_out": left_out}


def _with_wish(folder: job_dir.Folder, state: dict[str, Any]) -> dict[str, Any]:
    """The state, and in ``cancelling`` whether somebody asked for the job's end, which has not come."""
    asked = state["state"] not in job_dir.TERMINAL and os.path.exists(folder.file("cancel"))
    return dict(state, cancelling=asked)


def report(job: str) -> dict[str, Any]:
    """Everything that is kept of one job but its output.

    ``ends`` has each rank's newest end, ``events`` what else happened, in order. Raises FileNotFoundError
    when there is no such job.
    """
    folder = job_dir.Folder(job)
    plan = folder.plan()
    ends: dict[int, dict[str, Any]] = {}
    events = []
    for event in _lines(folder.file("events.jsonl")):
        if event["event"] != "exit":
            events.append(event)
        elif event.keys() >= _OF_AN_END:
            ends[event["rank"]] = event
    return {
        "state": _with_wish(folder, folder.state()),
        "plan": {key: plan[key] for key in _OF_PLAN if key in plan},
        "ranks": {node["name"]: [given["rank"] for given in node["ranks"]] for node in plan["nodes"]},
        "ends": [ends[rank] for rank in sorted(ends)],
        "events": events,
        "folder": folder.path,
    }


def lost_nodes(folder: job_dir.Folder) -> list[str]:
    """The nodes that went away from the job or fell silent, in that order."""
    lines = _lines(folder.file("events.jsonl"))
    lost = (line.get("node") for line in lines if line["event"] == "lost-node")
    return list(dict.fromkeys(node for node in lost if isinstance(node, str)))


def states_to_the_end(job: str) -> Iterator[dict[str, Any] | None]:
    """The job's state whenever it is another, to the last; None when there is nothing new, several times
    a second.

    Raises FileNotFoundError when there is no such job.
    """
    watch = job_dir.StateWatch(job_dir.Folder(job))
    shown: dict[str, Any] | None = None
    while True:
        state = watch.state()
        if state != shown:
            shown = state
            yield state
            if state["state"] in job_dir.TERMINAL:
                return
        yield None
        time.sleep(_POLL)


def _lines(path: str) -> Iterator[dict[str, Any]]:
    """The events of a file; one that is being written, or was cut short, is passed over."""
    try:
        with open(path, "rb") as file:
            for line in file:
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(event, dict) and isinstance(event.get("time"), float) and "event" in event:
                    yield event
    except FileNotFoundError:
        return
