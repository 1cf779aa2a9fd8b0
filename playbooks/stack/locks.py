"""Who works on a stack: Pulumi's locks, read where its backend keeps them, or from what Pulumi says of them.

A lock of Pulumi's own service is known to that service alone, and ends by itself with whoever holds it.
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from launch.errors import RetryError
from playbooks.project import Stack

__all__ = ["REFUSALS", "InUse", "Lock", "locks", "told"]

REFUSALS = (b"the stack is currently locked by", b"Another update is currently in progress")
"""How Pulumi's file backends and its service refuse a second command."""
_SAID = re.compile(r"created by (?P<who>\S+)@(?P<host>\S+) \(pid (?P<process>\d+)\) at (?P<since>\S+)")


@dataclass(frozen=True, slots=True)
class Lock:
    """One lock, and who made it."""

    process: int
    host: str
    who: str
    since: str
    """As Pulumi writes it, e.g. ``2026-11-22T00:31:05.123Z``; empty when it does not say."""

    @property
    def is_left(self) -> bool:
        """Whether whoever held it ran on this machine and is gone; of another machine that is not known."""
        return self.host == socket.gethostname() and _program(self.process) != "pulumi"

    def __str__(self) -> str:
        """Who and since when.

        >>> str(Lock(123, "desk", "ann", "2026-11-22T00:31:05.123Z"))
        'process 123 of ann on desk, since 2026-11-22 00:31:05 UTC'
        """
        day, _, time = self.since.partition("T")
        since = f", since {day} {time[:8]} UTC" if time and self.since.endswith("Z") else ""
        return f"process {self.process} of {self.who} on {self.host}{since}"


class InUse(RetryError):
    """Another command works on the stack; ``holders`` are its locks, none where the backend names nobody."""

    def __init__(self, stack: str, holders: tuple[Lock, ...]) -> None:
        self.holders = holders
        whose = "; ".join(map(str, holders)) or "Pulumi does not say whose"
        lines = [
            f"stack {stack}: another command works on it ({whose}): wait until it has ended, then repeat "
            "this one"
        ]
        away = dict.fromkeys(one.host for one in holders if one.host != socket.gethostname())
        if away:
            # Nobody here can tell whether it lives, and nothing else would ever take such a lock away.
            lines.append(
                f"only if {' and '.join(away)} was switched off meanwhile: `pulumi cancel --stack {stack}`"
            )
        super().__init__("\n".join(lines))


def locks(stack: Stack) -> tuple[Lock, ...]:
    """The locks on the stack; none are known where Pulumi's backend is not a folder."""
    backend = urlsplit(stack.environment.get("PULUMI_BACKEND_URL", ""))
    if backend.scheme != "file":
        return ()
    name = stack.name.rpartition("/")[2]
    folder = Path(unquote(backend.path), ".pulumi", "locks", "organization", "ranklift", name)
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            lock = json.loads(path.read_text())
            since = str(lock.get("timestamp") or "")
            found.append(Lock(int(lock["pid"]), str(lock["hostname"]), str(lock.get("username")), since))
        except (OSError, ValueError, KeyError):
            continue  # given back meanwhile, or not ours to judge
    return tuple(found)


def told(stack: str, refusal: str) -> InUse:
    """The error for what Pulumi says when it refuses.

    >>> print(told("dev", "error: the stack is currently locked by 1 lock(s). Either … `pulumi cancel`.\\n"
    ...            "file:///be/1.json: created by ann@desk (pid 7) at 2026-11-22T00:30:00Z").holders[0])
    process 7 of ann on desk, since 2026-11-22 00:30:00 UTC
    """
    return InUse(
        stack,
        tuple(
            Lock(int(one["process"]), one["host"], one["who"], one["since"])
            for one in _SAID.finditer(refusal)
        ),
    )


def _program(process: int) -> str | None:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    # One that was killed and not yet waited for has its name still.
    return None if rest.split()[0] in ("Z", "X") else name
