"""What the head tells of its jobs: all of them, one in full, and when one ends.

There is no index of them: five hundred ``state.json`` are read in some ten milliseconds, and what is read is
what is so.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from launch.remote.base import job_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launch.remote.base.payloads import JobListing, JobReport
    from launch.remote.base.records import Event, ExitEvent, State

__all__ = ["listing", "lost_nodes", "report", "states_to_the_end"]

_POLL = 0.05
_OF_AN_END = {"rank", "node", "status", "signal", "stopped", "attempt"}


def listing(last: int | None) -> JobListing:
    """Every job that has not ended, and the ``last`` of those that have (None: all), oldest first.

    ``left_out`` counts the ended ones that are not among them.
    """
    states = job_dir.all_jobs()
    ended = [state for state in states if state["state"] in job_dir.TERMINAL]
    left_out = 0 if last is None else max(0, len(ended) - last)
    old = {id(state) for state in ended[:left_out]}
    shown = [_with_wish(job_dir.Folder(state["job"]), state) for state in states if id(state) not in old]
    return {"jobs": shown, "left_out": left_out}


def _with_wish(folder: job_dir.Folder, state: State) -> State:
    """The state, and in ``cancelling`` whether somebody asked for the job's end, which has not come."""
    asked = state["state"] not in job_dir.TERMINAL and os.path.exists(folder.file("cancel"))
    return {**state, "cancelling": asked}


def report(job: str) -> JobReport:
    """Everything that is kept of one job but its output.

    ``ends`` has each rank's newest end, ``events`` what else happened, in order. Raises FileNotFoundError
    when there is no such job.
    """
    folder = job_dir.Folder(job)
    plan = folder.plan()
    ends: dict[int, ExitEvent] = {}
    events: list[Event] = []
    for event in _lines(folder.file("events.jsonl")):
        if event["event"] != "exit":
            events.append(event)
        elif event.keys() >= _OF_AN_END:
            ends[event["rank"]] = event
    return {
        "state": _with_wish(folder, folder.state()),
        "plan": {
            "command": plan["command"],
            "grace_s": plan["grace_s"],
            "max_restarts": plan.get("max_restarts", 0),
            "snapshot": plan["snapshot"],
            "timeout_s": plan["timeout_s"],
        },
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


def states_to_the_end(job: str) -> Iterator[State | None]:
    """The job's state whenever it is another, to the last; None when there is nothing new, several times
    a second.

    Raises FileNotFoundError when there is no such job.
    """
    watch = job_dir.StateWatch(job_dir.Folder(job))
    shown: State | None = None
    while True:
        state = watch.state()
        if state != shown:
            shown = state
            yield state
            if state["state"] in job_dir.TERMINAL:
                return
        yield None
        time.sleep(_POLL)


def _lines(path: str) -> Iterator[Event]:
    """The events of a file; one that is being written, or was cut short, is passed over."""
    try:
        with open(path, "rb") as file:
            for line in file:
                event = _event(line)
                if event is not None:
                    yield event
    except FileNotFoundError:
        return


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(event, dict) and isinstance(event.get("time"), float) and "event" in event):
        return None
    found: Event = event  # type: ignore[assignment]  # as far as it is asked for
    return found
