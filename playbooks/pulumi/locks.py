"""Which commands work on a stack: Pulumi's locks, read from its backend, or from its refusals.

A lock in a folder names a process, a host and a time, and outlives a process that was killed. That no process
of that number runs here proves nothing: two containers may have one host name and one backend. So a lock
counts as left behind only where a note says that a command here started the process and saw it take this
lock.
A lock of Pulumi's own service is known to that service alone, and ends with the process that holds it.
"""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from launch.errors import RetryError
from launch.remote.base.processes import identity, is_alive
from playbooks.project import Stack

__all__ = ["REFUSALS", "InUse", "Lock", "LockNote", "in_use_from", "locks"]

REFUSALS = (
    b"the stack is currently locked by",
    b"Another update is currently in progress",
    b"' already exists",
)
"""How Pulumi's file backends and its service refuse a second command, and `stack init` a slower one."""
_HOLDER = re.compile(r"created by (?P<who>\S+)@(?P<host>\S+) \(pid (?P<process>\d+)\) at (?P<since>\S+)")
_CLOCK_S = 5.0
"""Tolerated seconds between a process's start, counted from boot, and the clock of a lock's time."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock, and the process that holds it."""

    process: int
    host: str
    who: str
    since: str
    """Time as Pulumi writes it, e.g. ``2026-11-22T00:31:05.123Z``; empty when it is not known."""
    path: Path | None = None
    """Its file, where the backend is a folder."""
    is_left: bool = False
    """Whether it is proved that the process that held it has ended."""

    @property
    def holder(self) -> Literal["runs", "elsewhere", "not here"]:
        """Whether the process runs on this machine, by its number and start."""
        if self.host != socket.gethostname():
            return "elsewhere"
        begun = _begun(self.process)
        if begun is None:
            return "not here"
        taken = _moment(self.since)
        # A process younger than the lock has only the same number.
        return "runs" if taken is None or begun <= taken + _CLOCK_S else "not here"

    def __str__(self) -> str:
        """Return holder and time.

        >>> str(Lock(123, "desk", "ann", "2026-11-22T00:31:05.123Z"))
        'process 123 of ann on desk, since 2026-11-22 00:31:05 UTC'
        """
        day, _, time = self.since.partition("T")
        since = f", since {day} {time[:8]} UTC" if time and self.since.endswith("Z") else ""
        return f"process {self.process} of {self.who} on {self.host}{since}"


class InUse(RetryError):
    """Another command works on the stack; ``holders`` are its locks, empty where the backend names none.

    ``pulumi`` begins a command on its program.
    """

    def __init__(self, stack: str, holders: tuple[Lock, ...], pulumi: str = "pulumi") -> None:
        self.holders = holders
        whose = "; ".join(map(str, holders)) or "Pulumi does not name its holder"
        lines = [
            f"stack {stack}: another command is using it ({whose}): wait until it has ended, then repeat "
            "this one"
        ]
        away = dict.fromkeys(one.host for one in holders if one.holder == "elsewhere")
        if away:
            # Whether it lives cannot be known here, and nothing else would ever remove such a lock.
            lines.append(
                f"only if {' and '.join(away)} was switched off meanwhile: `{pulumi} cancel --stack {stack}`"
            )
        unseen = [str(one.process) for one in holders if one.holder == "not here"]
        if unseen:
            lines.append(
                f"no process {' or '.join(unseen)} that is as old as the lock runs here: it was killed, or "
                "runs in another container with this host name; only if no command uses the stack any "
                f"more: `{pulumi} cancel --stack {stack}`"
            )
        super().__init__("\n".join(lines))


class LockNote:
    """Records which lock a Pulumi started here takes, for the command that finds it left behind."""

    def __init__(self, stack: Stack, process: int) -> None:
        self._stack, self._process = stack, process
        self._path = stack.lock_note
        self._lock: Path | None = None

    def update(self) -> None:
        """Write the note once the process has the lock.

        Without the note, a lock left behind has to be removed by hand.
        """
        if self._lock is not None:
            return
        for lock in locks(self._stack):
            if lock.path is not None and lock.process == self._process and lock.holder == "runs":
                with suppress(OSError):
                    noted = {"lock": lock.path.name, "process": _identity(self._process)}
                    self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._path.write_text(json.dumps(noted))
                    self._lock = lock.path

    def remove(self) -> None:
        """Remove the note of a process that has ended, unless its lock still exists: then it was killed."""
        if self._lock is not None and not self._lock.exists():
            with suppress(OSError):
                self._path.unlink()
                self._path.parent.rmdir()  # unless the stack has anything else there


def locks(stack: Stack) -> tuple[Lock, ...]:
    """Return the locks on the stack; none where Pulumi's backend is not a folder."""
    backend = urlsplit(stack.environment.get("PULUMI_BACKEND_URL", ""))
    if backend.scheme != "file":
        return ()
    folder = Path(unquote(backend.path), ".pulumi", "locks", "organization", stack.program, stack.short_name)
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            lock = json.loads(path.read_text())
            since = str(lock.get("timestamp") or "")
            read = Lock(int(lock["pid"]), str(lock["hostname"]), str(lock.get("username")), since, path)
        except (OSError, ValueError, KeyError):
            continue  # released meanwhile, or of an unknown form
        found.append(replace(read, is_left=_is_left(stack, read)))
    return tuple(found)


def in_use_from(stack: str, refusal: str, pulumi: str = "pulumi") -> InUse:
    """Return the error for Pulumi's refusal; ``pulumi`` as in :class:`InUse`.

    >>> print(in_use_from("dev", "error: the stack is currently locked by 1 lock(s). Either …\\n"
    ...            "file:///be/1.json: created by ann@desk (pid 7) at 2026-11-22T00:30:00Z").holders[0])
    process 7 of ann on desk, since 2026-11-22 00:30:00 UTC
    """
    return InUse(
        stack,
        tuple(
            Lock(int(one["process"]), one["host"], one["who"], one["since"])
            for one in _HOLDER.finditer(refusal)
        ),
        pulumi,
    )


def _is_left(stack: Stack, lock: Lock) -> bool:
    try:
        noted = json.loads(stack.lock_note.read_text())
        process: Any = dict(noted["process"])
        is_its = noted["lock"] == (lock.path and lock.path.name) and process["pid"] == lock.process
        own = _identity(os.getpid())
        is_here = all(process.pop(key) == own[key] for key in ("namespace", "host"))
        is_here = is_here and process["boot"] == own["boot"] and own["host"] == lock.host
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False  # no note, or half of one, or a system without this information
    return is_its and is_here and not is_alive(process)


def _identity(process: int) -> dict[str, Any]:
    """Return what identifies the process among all, those of other containers and machines included.

    Raises OSError where the system does not provide it.
    """
    namespace = str(Path("/proc/self/ns/pid").readlink())
    return {**identity(process), "namespace": namespace, "host": socket.gethostname()}


def _begun(process: int) -> float | None:
    """Return when the process began, in seconds since 1970.

    None when no process of that number runs (a zombie does not run); 0 where the system does not provide it.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # another user's
    try:
        started = int(identity(process)["started"])
        boot = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    except ProcessLookupError:
        return None
    except OSError:
        return 0.0
    return 0.0 if boot is None else int(boot[1]) + started / os.sysconf("SC_CLK_TCK")


def _moment(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.timestamp()
