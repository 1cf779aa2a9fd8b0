"""Whose turn it is on this head: first in, first out, as far as slots are shared.

``~/.ranklift/queue.json`` holds an entry for each job that waits or runs. It is read and replaced under
a lock; entries whose supervisor is gone are dropped on sight. Jobs with other heads are not in it: the
runners' own locks on the slots keep those apart (:func:`launch.remote.node.slots.take_slots`). Which slots
they hold a job learns when a node refuses it: it keeps its place and avoids those from then on.

A torn queue.json, which a crash or a hand leaves behind, counts as empty but for the entries that are whole.
Jobs that wait enter it again when they next look, at its end; those that run keep their slots by the runners'
locks, as jobs of other heads do, and whoever comes learns of them from the nodes.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from launch.remote.base.job_dir import Folder, identity, is_alive
from launch.remote.base.ports import LAST_PORT, is_free
from launch.remote.base.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launch.remote.base.records import Plan, QueueEntry, Reservation, Taken

__all__ = [
    "Turn",
    "Wait",
    "admit",
    "again",
    "confirm",
    "enter",
    "leave",
    "refused_by",
    "requeue",
    "told",
    "waiting_for",
]

_FOLDER = "~/.ranklift"
_PORTS_TRIED = 1000
_FIELDS: dict[str, Any] = {
    "job": str,
    "process": dict,
    "nodes": dict,
    "slots": (dict, type(None)),
    "port": (int, type(None)),
    "holds": bool,
    "foreign": dict,
}


class Turn:
    """What a job was given when its turn came: slot numbers by node, and MASTER_PORT."""

    def __init__(self, slots: dict[str, list[int]], port: int) -> None:
        self.slots, self.port = slots, port


@contextmanager
def _entries() -> Iterator[list[QueueEntry]]:
    folder = os.path.expanduser(_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, "queue.json")
    with open(path + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries = [entry for entry in _read(path) if is_alive(entry["process"])]
        yield entries
        replace_file(path, json.dumps(entries).encode(), outlives_machine=False)  # no process does


def _read(path: str) -> list[QueueEntry]:
    """The entries that are whole; none where the file is not."""
    try:
        with open(path, "rb") as file:
            entries = json.loads(file.read())
    except (FileNotFoundError, ValueError, RecursionError):
        return []
    return [entry for entry in entries if _is_entry(entry)] if isinstance(entries, list) else []


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not entry.keys() >= _FIELDS.keys():
        return False
    if not all(isinstance(entry[name], kinds) for name, kinds in _FIELDS.items()):
        return False
    wishes = entry["nodes"].values()
    slots, foreign = (entry["slots"] or {}).values(), entry["foreign"].values()
    return (
        isinstance(entry["process"].get("pid"), int)
        and all(isinstance(wish, dict) and {"need", "of"} <= wish.keys() for wish in wishes)
        and all(isinstance(given, list) for given in slots)
        and all(isinstance(taken, list) and all(map(_is_pair, taken)) for taken in foreign)
    )


def _is_pair(taken: Any) -> bool:
    return isinstance(taken, list) and len(taken) == 2  # noqa: PLR2004


def enter(plan: Plan) -> None:
    """Puts the calling supervisor's job at the end of the queue."""
    with _entries() as entries:
        entries.append(_entry(plan))


def leave(job: str) -> None:
    """Takes the job out of the queue and frees what it held; its supervisor's end does that, too."""
    with suppress(OSError), _entries() as entries:
        entries[:] = [entry for entry in entries if entry["job"] != job]


def requeue(job: str, taken: Taken) -> None:
    """Gives back what the job was given, as nodes refused it; it keeps its place."""
    with _entries() as entries:
        mine = entries[_place(entries, job)]
        mine["slots"] = mine["port"] = None
        mine["holds"] = False
        mine["foreign"].update(taken)


def told(job: str, taken: Taken) -> None:
    """What the nodes that refused the job say now."""
    with _entries() as entries:
        entries[_place(entries, job)]["foreign"] = taken


def refused_by(job: str) -> list[str]:
    """The nodes some of whose slots jobs with other heads held when last heard of."""
    with _entries() as entries:
        return list(entries[_place(entries, job)]["foreign"])


def confirm(job: str) -> None:
    """The job's runners hold all that it was given; until then nobody behind it is given their nodes.

    On a full disk those behind it wait longer.
    """
    with suppress(OSError), _entries() as entries:
        entries[_place(entries, job)]["holds"] = True


def admit(job: str, port: int) -> Turn | None:
    """The job's slots and port if it may start now; ``port`` or the next one free on this head."""
    with _entries() as entries:
        place = _place(entries, job)
        mine = entries[place]
        slots = _free_slots(mine, entries[:place], entries[place + 1 :])
        if slots is None:
            return None
        mine["slots"] = slots
        mine["port"] = given = _free_port(port, {entry["port"] for entry in entries})
        return Turn(slots, given)


class Wait:
    """Why a job is not admitted: its ``place`` among those that wait on this head (1: the next), the ids of
    the ``jobs`` that it waits for, and the same in ``words``, which name the nodes of other heads' jobs."""

    def __init__(self, place: int, jobs: list[str], words: list[str]) -> None:
        self.place, self.jobs, self.words = place, jobs, words


def again(job: str, port: int) -> Turn | None:
    """The turn that the job has, for one more launch: its slots, and ``port`` or the next one that is free by
    now. None when it gave them back."""
    with _entries() as entries:
        mine = entries[_place(entries, job)]
        if mine["slots"] is None:
            return None
        others = {entry["port"] for entry in entries if entry is not mine}
        mine["port"] = given = _free_port(port, others)
        return Turn(mine["slots"], given)


def waiting_for(job: str) -> Wait:
    """What the job waits for: those that come before it, or run, on a node of its."""
    with _entries() as entries:
        place = _place(entries, job)
        mine = entries[place]
        ahead = entries[:place] + [entry for entry in entries[place + 1 :] if entry["slots"] is not None]
        jobs = [entry["job"] for entry in ahead if set(mine["nodes"]) & set(entry["nodes"])]
        words = list(jobs)
        own = {entry["job"] for entry in entries}
        for name, taken in mine["foreign"].items():
            holders = list(dict.fromkeys(holder for _, holder in taken if holder not in own))
            if holders:
                words.append(f"{', '.join(holders)} on {name}")
                jobs += [holder for holder in holders if holder not in jobs]
        waiting = 1 + sum(1 for entry in entries[:place] if entry["slots"] is None)
        return Wait(waiting, jobs, words)


def _entry(plan: Plan) -> QueueEntry:
    nodes: dict[str, Reservation] = {
        node["name"]: {"need": node["reserve"], "of": node["slots"]} for node in plan["nodes"]
    }
    return {
        "job": plan["id"],
        "process": identity(os.getpid()),
        "nodes": nodes,
        "slots": None,
        "port": None,
        "holds": False,
        "foreign": {},
    }


def _place(entries: list[QueueEntry], job: str) -> int:
    """Where the job is; at the end again where the queue was torn."""
    for place, entry in enumerate(entries):
        if entry["job"] == job:
            return place
    entries.append(_entry(Folder(job).plan()))
    return len(entries) - 1


def _free_slots(
    mine: QueueEntry, earlier: list[QueueEntry], later: list[QueueEntry]
) -> dict[str, list[int]] | None:
    given: dict[str, list[int]] = {}
    for name, wish in mine["nodes"].items():
        if any(not entry["holds"] and name in entry["nodes"] for entry in earlier):
            return None
        held = {slot for entry in earlier + later for slot in (entry["slots"] or {}).get(name, [])}
        held.update(slot for slot, _ in mine["foreign"].get(name, []))
        free = [slot for slot in range(wish["of"]) if slot not in held]
        if len(free) < wish["need"]:
            return None
        given[name] = free[: wish["need"]]
    return given


def _free_port(wanted: int, reserved: set[int | None]) -> int:
    last = min(wanted + _PORTS_TRIED - 1, LAST_PORT)
    for port in range(wanted, last + 1):
        if port not in reserved and is_free(port):
            return port
    raise OSError(f"no free port from {wanted} to {last}")
