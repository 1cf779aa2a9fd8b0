"""A job's folder on its head, ``~/.ranklift/jobs/<id>/``: its files and who may change them.

========== =====================================================================================
job.json   the plan as the operator sent it; once no rank can start again, without its secrets
state.json where the job is; replaced by rename, changed by the job's supervisor alone
events.jsonl what happened to the job, one :data:`launch.remote.base.records.Event` a line
stream.000001.log ... the ranks' merged output, see :mod:`launch.remote.log.segments`
exits.jsonl how each rank ended, in the order of the reports
cancel     exists once a cancel was requested; tags.jsonl has the tags that were added since the launch
reserve    room on the disk for the job's terminal state, used when the disk is full
========== =====================================================================================
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from launch.remote.base import timing
from launch.remote.base.files import keep_name, read_regular, remove_unfinished, replace_file, shorten_file
from launch.remote.base.processes import identity, is_alive
from launch.remote.base.records import Plan, Process, ShownPlan, State, Version
from launch.remote.reading import JobId, Malformed, parse, read

__all__ = [
    "PLAN_VERSION",
    "ROOT",
    "TERMINAL",
    "Folder",
    "OtherVersion",
    "StateWatch",
    "Torn",
    "Unreadable",
    "all_jobs",
    "first_state",
    "not_uploaded",
    "parse_plan",
    "shown_plan",
    "without_values",
]

TERMINAL = ("SUCCEEDED", "INCOMPLETE", "FAILED", "CANCELLED", "LOST")
"""Last states, after QUEUED, STARTING and RUNNING; only INCOMPLETE changes again, by `fab upload`."""

ROOT = "~/.ranklift/jobs"

PLAN_VERSION: Version = 1

_LOOK_AGAIN = 1.0
"""Seconds after which the supervisor is checked although state.json is unchanged."""
_RESERVE = "reserve"
_RESERVE_BYTES = 64 << 10


def without_values(plan: Plan) -> Plan | ShownPlan:
    """Return the plan as it may be shown and copied: user variables by name alone, and no signature.

    >>> without_values({"id": "a-1", "user_env": {"WANDB_API_KEY": "secret"}, "identity": "signed"})
    {'id': 'a-1', 'user_env': {'WANDB_API_KEY': None}, 'identity': None}
    """
    if not (plan.get("user_env") or plan.get("identity")):
        return plan
    shown: ShownPlan = {**plan, "user_env": dict.fromkeys(plan.get("user_env") or ())}
    return {**shown, "identity": None} if plan.get("identity") else shown


class Unreadable(Exception):
    """A record, by path, that cannot be used, and the ``problem``."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.problem = problem


class Torn(Unreadable):
    """A record that is not as written: a crash of the machine may leave it empty or incomplete."""


class OtherVersion(Unreadable):
    """A plan that another version of the code made, whose fields' meaning is unknown."""


def parse_plan(data: bytes, path: str = "job.json") -> Plan:
    """Return the plan that the bytes of a job.json hold. Raise :class:`Torn` or :class:`OtherVersion`."""
    plan: Plan = _parse_record(data, ("nodes",), path)
    if plan.get("version") != PLAN_VERSION:
        its = f"of version {plan['version']!r}" if "version" in plan else "without a version"
        raise OtherVersion(path, f"is a plan {its}; this code reads version {PLAN_VERSION}")
    return plan


def shown_plan(data: bytes) -> bytes:
    """Return a job.json without secrets. Raise :class:`Unreadable`: an unknown plan may hold them."""
    shown = without_values(plan := parse_plan(data))
    return data if shown is plan else json.dumps(shown).encode()


def _without_secrets(data: bytes) -> bytes:
    """Return a job.json of any version, made no longer, without its secrets: nothing of a torn one."""
    try:
        plan = _parse_record(data, (), "")
    except Torn:
        return b""
    values = plan.get("user_env")
    has_values = isinstance(values, dict) and any(value is not None for value in values.values())
    if not (has_values or plan.get("identity")):
        return data
    return json.dumps(without_values(plan), separators=(",", ":")).encode()


def _parse_record(data: bytes, fields: Iterable[str], path: str) -> Any:
    """Return the record that a file's bytes hold. Raise :class:`Torn` when it lacks one of ``fields``."""
    record: Any = None
    with suppress(Malformed):
        record = parse(data)
    if not isinstance(record, dict) or not record.keys() >= set(fields):
        raise Torn(path, "is damaged")
    return record


def first_state(job: str, plan: Plan, created: float, supervisor: Process | None) -> State:
    """Return the state of a new job; a torn ``plan`` may lack fields."""
    return {
        "job": job,
        "name": plan.get("name", job),
        "kind": plan.get("kind", ""),
        "display_name": plan.get("display_name", ""),
        "experiment": plan.get("experiment", ""),
        "description": plan.get("description", ""),
        "tags": plan.get("tags", {}),
        "state": "QUEUED",
        "reason": "",
        "exit_status": None,
        "created": created,
        "started": None,
        "ended": None,
        "port": None,
        "nodes": [node["name"] for node in plan["nodes"]],
        "ranks": sum(len(node["ranks"]) for node in plan["nodes"]),
        "failure": None,
        "restarts": 0,
        "place": None,
        "waits_for": [],
        "supervisor": supervisor,
        "node_price": plan.get("node_price"),
    }


def not_uploaded(job: str, why: str) -> str:
    """Return the part of a state's reason for outputs that are not in storage, its last one."""
    return f"not all of its outputs are in storage, `fab upload {job}` goes on: {why}"


_END = {"state", "reason", "exit_status", "failure"}


def _parse_state(job: str, data: bytes, path: str) -> State:
    """Return the state that the bytes of the job's state.json hold. Raise :class:`Torn` also where a field is
    not of its type: a job can write to its own record and to others'."""
    record = _parse_record(data, (), path)
    try:
        state: State = read(State, record)
    except Malformed as error:
        raise Torn(path, f"is damaged: {error}") from None
    end = state.get("pending")
    if state["job"] != job or (end and (record["pending"].keys() != _END or end["state"] not in TERMINAL)):
        raise Torn(path, "is damaged")
    return state


class Folder:
    """One job's folder."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.path = os.path.join(os.path.expanduser(ROOT), job)

    def file(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return os.path.join(self.path, name)

    def create(self, plan: Plan) -> None:
        """Make the folder with job.json in it, or nothing. Raise OSError: FileExistsError when the job
        exists."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        os.mkdir(self.path, 0o700)
        try:
            replace_file(self.file("job.json"), json.dumps(plan).encode())
            with open(self.file(_RESERVE), "wb") as file:
                file.write(bytes(_RESERVE_BYTES))
        except OSError:
            for name in os.listdir(self.path):
                os.unlink(self.file(name))
            os.rmdir(self.path)
            raise

    def plan(self) -> Plan:
        """Return the plan. Raise FileNotFoundError when there is no such job, and as :func:`parse_plan`."""
        path = self.file("job.json")
        return parse_plan(read_regular(path), path)

    def state(self) -> State:
        """Return the job's state; write LOST when the supervisor is gone without a terminal state.

        Where state.json is torn, after a crash of the head or by a job, a live supervisor goes on and writes
        the file again; without a supervisor the job is LOST.
        """
        try:
            state = self._state()
        except Torn as torn:
            state = self._made_again()
            reason = f"the job's records are damaged, by a crash of the head or by a job: {torn}"
        else:
            reason = (
                "the job's supervisor exited without recording why: the head was restarted or out of memory"
            )
        if state["state"] in TERMINAL or is_alive(state.get("supervisor")):
            return state
        return self.lose(state, reason + self._what_stays())

    def _what_stays(self) -> str:
        """Return a hint at working folders that the job's supervisor has not cleared; "" without any."""
        try:
            restarts = self.plan().get("max_restarts")
        except (OSError, Unreadable):
            return ""
        return f"; its working folders stay on its nodes until `fab cancel {self.job}`" if restarts else ""

    def lose(self, state: State, reason: str) -> State:
        """Write the terminal state of a job without a supervisor: LOST, or how its ranks ended where only the
        upload was cut off; return the job's state then."""
        lost: State = {**state, "state": "LOST", "reason": reason, "exit_status": 255, "ended": time.time()}
        if end := state.get("pending"):
            del lost["pending"]
            reason = "; ".join(filter(None, (end["reason"], not_uploaded(self.job, reason))))
            lost.update({**end, "reason": reason})  # type: ignore[typeddict-item]  # its fields are State's
        return self.write_state({**lost, "place": None, "waits_for": []})

    def _state(self) -> State:
        path = self.file("state.json")
        try:
            data = read_regular(path)
        except PermissionError:
            self.permit()
            data = read_regular(path)
        except FileNotFoundError:
            if time.time() - os.stat(self.file("job.json")).st_mtime < timing.FIRST_STATE_S:
                raise
            raise Torn(path, "was never written") from None
        except NotADirectoryError:  # a stray file, and no job
            raise
        except OSError as error:
            raise Torn(path, f"cannot be read: {error.strerror}") from None
        return _parse_state(self.job, data, path)

    def _made_again(self) -> State:
        """Return a state from other records and processes, in place of a torn state.json."""
        began = min(max(os.stat(self.path).st_mtime, 0.0), time.time())  # a job can set it
        supervisor = self._find_supervisor()
        try:
            state: State = read(State, first_state(self.job, self.plan(), began, supervisor))
        except (OSError, Unreadable, Malformed, LookupError, TypeError):
            nothing: Plan = {"nodes": []}  # type: ignore[typeddict-item]  # all that is known of a torn plan
            state = first_state(self.job, nothing, began, supervisor)
        return {**state, "state": "RUNNING", "reason": "state.json is damaged"}

    def _find_supervisor(self) -> Process | None:
        """Return the process that writes the job's supervisor.log, as :func:`identity` does, or None."""
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/2") == self.file("supervisor.log"):
                    return identity(pid)
        return None

    def permit(self) -> None:
        """Restore the modes of the folder and its state, which a rank may have changed. Raise OSError."""
        os.chmod(self.path, 0o700)
        with suppress(FileNotFoundError):
            os.chmod(self.file("state.json"), 0o600)

    def write_state(self, state: State) -> State:
        """Replace state.json unless it is terminal, and log the change; return the job's state then.

        Secrets leave job.json before a state after which no rank starts. A full disk raises nothing: a
        terminal state takes the reserved room; another state is not written.
        """
        try:
            folder = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            self.permit()
            folder = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            with suppress(FileNotFoundError, Torn):  # none yet, or a torn one, which this write repairs
                before = self._state()
                if before["state"] in TERMINAL:
                    return before  # of a supervisor, and a query that found none, the first wins
            if state["state"] in TERMINAL or "pending" in state:
                state = {**state, "reason": "; ".join(filter(None, (state["reason"], self._forget_values())))}
            try:
                replace_file(self.file("state.json"), json.dumps(state).encode())
                if state["state"] in TERMINAL:
                    keep_name(self.file("state.json"))
                    with suppress(OSError):
                        os.unlink(self.file(_RESERVE))
            except OSError:
                if state["state"] in TERMINAL:
                    self._into_reserve(state)
        finally:
            os.close(folder)
        self.event("state", state=state["state"], reason=state["reason"])
        return state

    def _forget_values(self) -> str:
        """Remove the job's secrets from job.json; return why they stay, if they do."""
        path = self.file("job.json")
        try:
            with suppress(FileNotFoundError):  # a removed plan has no values
                remove_unfinished(path)
                if (kept := _without_secrets(before := read_regular(path))) != before:
                    shorten_file(path, kept)
        except OSError as error:
            return f"{path} still has the values of the job's variables, remove it: {error.strerror}"
        return ""

    def _into_reserve(self, state: State) -> None:
        """Write state.json in the reserve's own blocks: freed blocks would be taken by others at once."""
        try:
            with open(self.file(_RESERVE), "r+b") as file:
                file.write(json.dumps(state).encode())
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            os.rename(self.file(_RESERVE), self.file("state.json"))
        except OSError:
            return  # no reserve is left; the next query finds that the supervisor has ended

    def event(self, what: str, **fields: Any) -> None:
        """Append an event of :data:`launch.remote.base.records.Event`, with its time, to events.jsonl."""
        self.append("events.jsonl", dict(fields, time=time.time(), event=what))

    def append(self, name: str, record: Mapping[str, object]) -> None:
        """Append one line to a file of records, or nothing: a full disk loses the line, not the job."""
        line = json.dumps(record).encode() + b"\n"
        try:
            fd = os.open(self.file(name), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # a cut line before must not spoil this one
            if os.write(fd, line) < len(line):
                os.ftruncate(fd, size)
        except OSError:
            return
        finally:
            os.close(fd)


class StateWatch:
    """A job's state for frequent queries: read when state.json has changed, and once a second."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._state: State
        self._stamp: object = None
        self._looked = 0.0

    def state(self) -> State:
        """Return the state, see :meth:`Folder.state`. Raise FileNotFoundError when there is no such job."""
        now = time.monotonic()
        entry = os.stat(self._folder.file("state.json"))
        stamp = (entry.st_ino, entry.st_mtime_ns)
        if stamp != self._stamp or now - self._looked > _LOOK_AGAIN:
            self._stamp, self._looked = stamp, now
            self._state = self._folder.state()
        return self._state


def all_jobs() -> list[State]:
    """Return the state of every job on this head, oldest first, without incomplete folders."""
    try:
        names = sorted(os.listdir(os.path.expanduser(ROOT)))
    except FileNotFoundError:
        return []
    states = []
    for name in names:
        # Another process may be making or removing the folder, and one without an id as its name is no job's.
        with suppress(OSError, ValueError, KeyError, Malformed):
            states.append(Folder(read(JobId, name)).state())
    return sorted(states, key=lambda state: state["created"])
