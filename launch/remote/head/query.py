"""Queries about the head's jobs: the list, one in full, and each change of one's state.

There is no index: five hundred ``state.json`` are read in some ten milliseconds, and they are never stale.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Dict  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base import job_dir, processes
from launch.remote.base.files import read_regular
from launch.remote.base.health_records import NOT_CHECKED
from launch.remote.base.payloads import JobListing, JobReport
from launch.remote.base.records import BARE, Event, ExitEvent, Plan, State
from launch.remote.node.slots import ASIDE
from launch.remote.reading import Malformed, parse, read

__all__ = ["add_tags", "job_report", "list_jobs", "lost_nodes", "state_changes", "stored_report"]

_POLL = 0.05
_MOST_ASIDE = 20
"""Names in an answer; a job can make any number."""
_TAGS, _TAG_BYTES = "tags.jsonl", 256 << 10
"""File of the tags that were added since the launch, and its largest size: a job can write there, too."""
_EXIT_FIELDS = {"rank", "node", "status", "signal", "stopped", "attempt"}


def list_jobs(last: int | None) -> JobListing:
    """Return every job that has not ended, and the ``last`` of those that have (None: all), oldest first."""
    states = job_dir.all_jobs()
    ended = [state for state in states if state["state"] in job_dir.TERMINAL]
    left_out = 0 if last is None else max(0, len(ended) - last)
    old = {id(state) for state in ended[:left_out]}
    shown = [_as_of_now(job_dir.Folder(state["job"]), state) for state in states if id(state) not in old]
    return {"jobs": shown, "left_out": left_out, "aside": _aside()}


def _aside() -> list[str]:
    """Return what was moved aside because a job had put it in the place of the node's files, by its path
    below ``~/.ranklift``."""
    root = os.path.expanduser("~/.ranklift")
    found: list[str] = []
    for folder in ("", "slots/"):
        with contextlib.suppress(OSError):
            found += sorted(folder + name for name in os.listdir(f"{root}/{folder}") if ASIDE in name)
    return [os.fsencode(path).decode("utf-8", "replace") for path in found[:_MOST_ASIDE]]


def _as_of_now(folder: job_dir.Folder, state: State) -> State:
    """Return the state with ``cancelling``, whether there is a cancel request and the job has not ended, and
    with ``uploading`` only while the supervisor of a job that was cancelled sends its outputs."""
    cancelling = state["state"] not in job_dir.TERMINAL and os.path.exists(folder.file("cancel"))
    now: State = {**state, "cancelling": cancelling}
    added = _added_tags(folder)
    if added and isinstance(state["tags"], dict):
        now["tags"] = {**state["tags"], **added}
    urls = now.pop("uploading", [])
    if urls and processes.is_alive(state["supervisor"]):
        now["uploading"] = urls
        now["reason"] = "; ".join(filter(None, (state["reason"], f"uploading to {', '.join(urls)}")))
    return now


def _added_tags(folder: job_dir.Folder) -> Dict[str, str]:  # noqa: UP006
    """Return the tags that were added to the job since its launch, the last of each name."""
    tags: Dict[str, str] = {}  # noqa: UP006
    with contextlib.suppress(OSError):
        for line in read_regular(folder.file(_TAGS), _TAG_BYTES).splitlines():
            with contextlib.suppress(Malformed):  # another line is what the job, or a crash, has made of one
                tags.update(read(Dict[str, str], parse(line)))  # noqa: UP006
    return tags


def add_tags(job: str, tags: Mapping[str, str]) -> bool:
    """Add tags to a job, in place of those of the same names; return whether there was room for them.

    Raise FileNotFoundError when there is no such job.
    """
    folder = job_dir.Folder(job)
    os.stat(folder.file("job.json"))
    path = folder.file(_TAGS)
    before = os.path.getsize(path) if os.path.exists(path) else 0
    if before + len(json.dumps(dict(tags))) >= _TAG_BYTES:
        return False
    folder.append(_TAGS, tags)
    return tags.items() <= _added_tags(folder).items()


def job_report(job: str) -> JobReport:
    """Return all records of one job but its output. Raise FileNotFoundError when there is no such job."""
    folder = job_dir.Folder(job)
    plan = folder.plan()
    return stored_report(folder.path, plan, _as_of_now(folder, folder.state()))


def stored_report(folder: str, plan: Plan, state: State) -> JobReport:
    """Return all records of a job but its output, with the events of a folder."""
    ends: dict[int, ExitEvent] = {}
    events: list[Event] = []
    for event in _lines(os.path.join(folder, "events.jsonl")):
        if event["event"] != "exit":
            events.append(event)
        elif event.keys() >= _EXIT_FIELDS and isinstance(event["rank"], int):
            ends[event["rank"]] = event
    return {
        "state": state,
        "plan": {
            "command": plan["command"],
            "environment": plan.get("environment", BARE),
            "data": plan.get("data", []),
            "grace_s": plan["grace_s"],
            "health": plan.get("health", NOT_CHECKED)["mode"],
            "max_restarts": plan.get("max_restarts", 0),
            "snapshot": plan["snapshot"],
            "timeout_s": plan["timeout_s"],
        },
        "ranks": {node["name"]: [given["rank"] for given in node["ranks"]] for node in plan["nodes"]},
        "ends": [ends[rank] for rank in sorted(ends)],
        "events": events,
        "folder": folder,
    }


def lost_nodes(folder: job_dir.Folder) -> list[str]:
    """Return the nodes that the job lost, in that order."""
    lines = _lines(folder.file("events.jsonl"))
    lost = (line.get("node") for line in lines if line["event"] == "lost-node")
    return list(dict.fromkeys(node for node in lost if isinstance(node, str)))


def state_changes(job: str) -> Iterator[State | None]:
    """Yield the job's state after each change, to the last; None when there is no change, several times a
    second. Raise FileNotFoundError when there is no such job.
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
    """Yield the events of a file, without any that is being written or was cut short."""
    try:
        data = read_regular(path)
    except OSError:
        return
    for line in data.splitlines():
        event = _event(line)
        if event is not None:
            yield event


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(event, dict) and isinstance(event.get("time"), float) and "event" in event):
        return None
    found: Event = event  # type: ignore[assignment]  # readers check the fields they use
    return found
