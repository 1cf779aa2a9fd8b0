"""A call in a child process with limits of time and memory, for what a job's processes have written.

A file may be on storage that does not answer, a pickle may take gigabytes or hours to load, and a name may
not resolve; none of these can be interrupted from inside the process. The child is killed instead, and its
caller goes on.
"""

from __future__ import annotations

import json
import os
import resource
import select
import time
from contextlib import suppress

from launch.remote.base import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["NotRead", "ReadTooLong", "bounded", "printable"]

MEMORY = 256 << 20
"""Bytes that the call may allocate: a flight record of 16 MiB takes half of them."""
_ANSWER = 1 << 20
_CHUNK = 1 << 16
_REAP_S = 0.2


class NotRead(Exception):
    """Why something was not read: one sentence that names it."""


class ReadTooLong(NotRead):
    """The limit of time was exceeded."""


def printable(text: str) -> str:
    """Return a text of a job's process without what controls the terminal that shows it.

    >>> printable("gloo:\\x1b[2J")
    'gloo:?[2J'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def bounded(what: str, call: Callable[[], object], seconds: float) -> Any:
    """Return the result of ``call``, which JSON can express, within ``seconds``; ``what`` names it in errors.

    Raise :class:`NotRead`: the one that ``call`` raised, or one that names the limit that it exceeded.
    """
    if seconds <= 0:
        raise NotRead(f"{what}: there was no time left to read it")
    receiving, sending = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(receiving)
        _run(what, call, sending)
    os.close(sending)
    try:
        answer = _receive(receiving, time.monotonic() + seconds)
    finally:
        os.close(receiving)
        _end(pid)
    if answer is None:
        raise ReadTooLong(f"{what}: reading it took longer than {seconds:.1f} s")
    try:
        found = json.loads(answer)
    except ValueError:
        raise NotRead(f"{what}: the process that read it ended early") from None
    if found["reason"]:
        raise NotRead(found["reason"])
    return found["result"]


def _run(what: str, call: Callable[[], object], sending: int) -> None:
    """Call in the child, send the answer, and do not return."""
    try:
        processes.die_with_parent(processes.SIGKILL)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # a child that the kernel cannot kill must not hold the caller's pipes open
            os.dup2(null, number)
        used = resource.getpagesize() * _pages()
        for kind, limit in ((resource.RLIMIT_AS, used + MEMORY), (resource.RLIMIT_CORE, 0)):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        answer: dict[str, object] = {"reason": "", "result": None}
        try:
            answer["result"] = call()
        except NotRead as error:
            answer["reason"] = str(error)
        except MemoryError:
            answer["reason"] = f"{what}: reading it takes more than {MEMORY >> 20} MiB of memory"
        except OSError as error:
            answer["reason"] = f"{what}: {error.strerror or error}"
        except Exception as error:  # noqa: BLE001  (the caller has to know it, whatever it is)
            answer["reason"] = f"{what}: {type(error).__name__}"
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(sending, data) :]
    finally:
        os._exit(0)


def _pages() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0])


def _receive(fd: int, deadline: float) -> bytes | None:
    """Return what the child has written until its end; None where that does not come in time."""
    data = b""
    while len(data) <= _ANSWER:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return None
        piece = os.read(fd, _CHUNK)
        if not piece:
            return data
        data += piece
    return b""


def _end(pid: int) -> None:
    """Kill the child; one that waits in the kernel is not waited for."""
    processes.kill(pid, processes.SIGKILL)
    until = time.monotonic() + _REAP_S
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
            time.sleep(0.005)
