"""The queue of a head's jobs: first in, first out, as far as jobs share slots.

``~/.ranklift/queue.json`` holds an entry for each job that waits or runs. It is read and replaced under a
lock; entries whose supervisor is gone are dropped on sight. Jobs with other heads are not in it: the runners'
own locks keep those apart (:func:`launch.remote.node.slots.take_slots`). A job that a node refuses keeps its
place, avoids the slots that others hold there, and queries the nodes from time to time (:class:`SlotQuery`).

A torn queue.json, which a crash or a hand leaves behind, counts as empty but for the entries that are whole;
what a job has put in its place, or in that of its lock, is moved aside, and `fab jobs` names it.
Jobs that wait enter it again at its end; those that run keep their slots by the runners' locks.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from launch.remote.base import timing
from launch.remote.base.files import read_regular, replace_file
from launch.remote.base.job_dir import Folder
from launch.remote.base.names import drained_at, is_removal
from launch.remote.base.ports import LAST_PORT, is_free
from launch.remote.base.processes import identity, is_alive
from launch.remote.base.records import Plan, QueueEntry, Reservation, Taken
from launch.remote.head.runners.node_command import start_on_node
from launch.remote.login import own_output
from launch.remote.node.slots import move_aside, open_lock

__all__ = [
    "Allocation",
    "SlotQuery",
    "Wait",
    "admit",
    "confirm",
    "enter",
    "leave",
    "readmit",
    "refusal_among",
    "refusing_nodes",
    "requeue",
    "set_taken",
    "slots_of",
    "waiting_for",
]

_FOLDER = "~/.ranklift"
_PORTS_TRIED = 1000
_UNDRAIN = "`fab undrain NODE` ends the drain"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "job": str,
    "process": dict,
    "nodes": dict,
    "slots": (dict, type(None)),
    "port": (int, type(None)),
    "holds": bool,
    "foreign": dict,
}
_WISH = ("need", "of")
_MOST_SLOTS = 4096
"""Above every node's slots: what is larger was written by a job."""


class Allocation:
    """What the queue gave a job: slot numbers by node, and MASTER_PORT."""

    def __init__(self, slots: dict[str, list[int]], port: int) -> None:
        self.slots, self.port = slots, port


@contextmanager
def _entries() -> Iterator[list[QueueEntry]]:
    folder = os.path.expanduser(_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, "queue.json")
    with open(open_lock(path + ".lock"), "r+b", buffering=0) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries = [entry for entry in _read(path) if is_alive(entry["process"])]
        yield entries
        replace_file(path, json.dumps(entries).encode(), outlives_machine=False)  # no process does


def _read(path: str) -> list[QueueEntry]:
    """Return the entries that are whole, none where the file is not JSON; move aside what is no file."""
    try:
        entries = json.loads(read_regular(path))
    except (ValueError, RecursionError):
        return []
    except OSError:
        with suppress(FileNotFoundError):
            move_aside(path)
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
        and all(isinstance(wish, dict) and all(map(_is_count, map(wish.get, _WISH))) for wish in wishes)
        and all(isinstance(given, list) and all(map(_is_count, given)) for given in slots)
        and all(map(_is_taken, foreign))
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST_SLOTS


def _is_taken(value: Any) -> bool:
    """Return whether these are a node's held slots, each with who holds it."""
    return isinstance(value, list) and all(
        isinstance(pair, list) and list(map(type, pair)) == [int, str] for pair in value
    )


def enter(plan: Plan) -> None:
    """Put the calling supervisor's job at the end of the queue."""
    with _entries() as entries:
        entries.append(_entry(plan))


def leave(job: str) -> None:
    """Take the job out of the queue and free what it held, as its supervisor's end does, too."""
    with suppress(OSError), _entries() as entries:
        entries[:] = [entry for entry in entries if entry["job"] != job]


def requeue(job: str, taken: Taken) -> None:
    """Give back what the job was given, because nodes refused it; it keeps its place."""
    with _entries() as entries:
        mine = entries[_position(entries, job)]
        mine["slots"] = mine["port"] = None
        mine["holds"] = False
        mine["foreign"].update(taken)


def set_taken(job: str, taken: Taken) -> None:
    """Record which slots jobs with other heads hold, as the nodes that refused the job report now."""
    with _entries() as entries:
        entries[_position(entries, job)]["foreign"] = taken


def refusing_nodes(job: str) -> list[str]:
    """Return the nodes some of whose slots jobs with other heads held by the last report."""
    with _entries() as entries:
        return list(entries[_position(entries, job)]["foreign"])


def confirm(job: str) -> None:
    """Record that the job's runners hold all that it was given: jobs behind it may get its nodes then. On a
    full disk these wait longer."""
    with suppress(OSError), _entries() as entries:
        entries[_position(entries, job)]["holds"] = True


def admit(job: str, port: int) -> Allocation | None:
    """Return the job's slots and port if it may start now; the port is ``port`` or the next free one."""
    with _entries() as entries:
        position = _position(entries, job)
        mine = entries[position]
        slots = _free_slots(mine, entries[:position], entries[position + 1 :])
        if slots is None:
            return None
        mine["slots"] = slots
        mine["port"] = given = _free_port(port, {entry["port"] for entry in entries})
        return Allocation(slots, given)


class Wait:
    """Why a job is not admitted: its ``place`` among those that wait on this head (1: the next), the ids of
    the ``jobs`` that it waits for, and the same in ``words``, which name the nodes of other heads' jobs."""

    def __init__(self, place: int, jobs: list[str], words: list[str]) -> None:
        self.place, self.jobs, self.words = place, jobs, words


def slots_of(job: str) -> dict[str, list[int]]:
    """Return the slots that the job was given, by node."""
    with _entries() as entries:
        return entries[_position(entries, job)]["slots"] or {}


def readmit(job: str, port: int) -> Allocation | None:
    """Return the slots that the job has, for one more launch, and ``port`` or the next port that is free by
    now. None when it gave them back."""
    with _entries() as entries:
        mine = entries[_position(entries, job)]
        if mine["slots"] is None:
            return None
        others = {entry["port"] for entry in entries if entry is not mine}
        mine["port"] = given = _free_port(port, others)
        return Allocation(mine["slots"], given)


def waiting_for(job: str) -> Wait:
    """Return why the job waits: the jobs that come before it, or run, on one of its nodes."""
    with _entries() as entries:
        position = _position(entries, job)
        mine = entries[position]
        ahead = entries[:position] + [e for e in entries[position + 1 :] if e["slots"] is not None]
        jobs = [entry["job"] for entry in ahead if set(mine["nodes"]) & set(entry["nodes"])]
        words = list(jobs)
        own = {entry["job"] for entry in entries}
        for name, taken in mine["foreign"].items():
            drained = {holder for _, holder in taken if drained_at(holder) is not None}
            words += [f"{name}, {holder}" for holder in sorted(drained)]
            others = own | drained
            holders = list(dict.fromkeys(holder for _, holder in taken if holder not in others))
            if holders:
                words.append(f"{', '.join(holders)} on {name}")
                jobs += [holder for holder in holders if holder not in jobs]
        waiting = 1 + sum(1 for entry in entries[:position] if entry["slots"] is None)
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


def _position(entries: list[QueueEntry], job: str) -> int:
    """Return the job's index; where the queue was torn, put it at the end again."""
    for position, entry in enumerate(entries):
        if entry["job"] == job:
            return position
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


def refusal_among(taken: Taken, created: float) -> tuple[str, str] | None:
    """Return a node that no waiting gives to a job ``created`` at this Unix time, and the reason; None where
    there is none: one that a command removes, or that was drained before. A job that is older waits for it.

    >>> refusal_among({"node000003": [(0, "train-1")]}, 0.0)
    >>> refusal_among({"node000003": [(0, "`fab scale 3` of ann on desk")]}, 0.0)
    ('node000003', 'node000003 is being removed by `fab scale 3` of ann on desk')
    >>> drained = {"node000003": [(0, "drained 2026-03-01T09:05:07Z by ann on desk")]}
    >>> refusal_among(drained, 1772355900.0)
    >>> refusal_among(drained, 1772355910.0)[1].partition(":")[0]
    'node000003 is drained 2026-03-01T09'
    """
    for name, slots in taken.items():
        for _, holder in slots:
            if is_removal(holder):
                return name, f"{name} is being removed by {holder}"
            since = drained_at(holder)
            if since is not None and since < created:
                return name, f"{name} is {holder}: choose other nodes, as with --nodes any:N; {_UNDRAIN}"
    return None


class SlotQuery:
    """One query to the nodes of these ``names``, all at once, which of their slots are held, while the
    supervisor goes on."""

    def __init__(self, plan: Plan, names: Collection[str]) -> None:
        null = subprocess.DEVNULL
        self._queries = {
            node["name"]: start_on_node(plan, index, f"slots {int(node['slots'])}", stdin=null, stderr=null)
            for index, node in enumerate(plan["nodes"])
            if node["name"] in names
        }
        self._until = time.monotonic() + timing.NODES_ANSWER_S

    @property
    def is_over(self) -> bool:
        """Whether all nodes have answered, or had their time to."""
        return time.monotonic() > self._until or all(
            process.poll() is not None for process in self._queries.values()
        )

    def result(self) -> Taken:
        """End the query; return the held slots. A node that did not answer is left out: the next launch finds
        the reason."""
        taken: Taken = {}
        for name, process in self._queries.items():
            if process.poll() is None:
                process.kill()
            output, _ = process.communicate()
            try:
                found = json.loads(own_output(output))
            except (ValueError, RecursionError):
                continue
            if found and _is_taken(found):
                taken[name] = found
        return taken
