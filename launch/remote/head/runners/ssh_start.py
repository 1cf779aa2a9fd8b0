"""How runners come to life: over ssh, one per node, or by mpirun, one per rank."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

from launch.remote.base.processes import SIGTERM, die_with_parent
from launch.remote.head.runners.channel import Link

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launch.remote.base.records import Plan
    from launch.remote.mpi.detect import Mpi

__all__ = ["collect", "node_link", "other_mpis", "start_mpirun", "sweep", "taken_slots"]

NOT_FOUND = 127
_AT_ONCE = 48
_ANSWER_S = 20.0
"""Seconds a node gets to say which MPI it has."""
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-T")


def start_mpirun(argv: list[str], mpi: Mpi, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts mpirun in the home folder, which every node has; secrets in ``more`` reach it by that alone.

    It leads a session of its own, for Intel MPI's is a script that runs the real one.
    """
    return subprocess.Popen(
        [mpi.command, *argv[1:]],
        env=dict(mpi.env, **more),
        cwd=os.path.expanduser("~"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(SIGTERM),  # noqa: PLW1509  the supervisor has no threads
    )


def other_mpis(plan: Plan, known: list[str], first: str, mpi: Mpi) -> dict[int, str]:
    """Why nodes cannot start ranks as the head's ``mpi`` asks them to, by node; they are asked all at once.

    Empty when all have the same. ``known`` and ``first`` are what the head's own search was given.
    """
    request = json.dumps({"known": known, "first": first}).encode() + b"\n"
    reasons: dict[int, str] = {}
    left = list(range(1, len(plan["nodes"])))
    while left:
        asked, left = left[:_AT_ONCE], left[_AT_ONCE:]
        asking = []
        for index in asked:
            process = _remote(plan, index, "mpi", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # it says why on its stderr
                    process.stdin.write(request)
                    process.stdin.flush()
            asking.append((index, process))
        until = time.monotonic() + _ANSWER_S
        for index, process in asking:
            reason = _other_mpi(process, mpi, until)
            if reason:
                reasons[index] = reason
    return reasons


def _other_mpi(process: subprocess.Popen[bytes], mpi: Mpi, until: float) -> str:
    try:
        out, err = process.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"no answer within {_ANSWER_S:g} s"
    try:
        found = json.loads(out)
    except ValueError:
        words = err.strip().splitlines()
        return (
            words[-1].decode("utf-8", "replace") if words else f"no answer, exit status {process.returncode}"
        )
    if found["unwritable"]:
        return "; ".join(found["unwritable"])
    if "error" in found:
        return f"{found['error']}; the head has {mpi.title}"
    same = (found["title"], found["command"]) == (mpi.title, mpi.command)
    return "" if same else f"mpirun is {found['title']} ({found['command']}); the head has {mpi.title}"


def node_link(plan: Plan, index: int) -> Link:
    """Starts the runner of one node: the head's own without ssh, the others' over it."""
    what = f"node {plan['id']}"
    return Link(index, process=_remote(plan, index, what, stdin=subprocess.PIPE, stderr=subprocess.PIPE))


def sweep(plan: Plan, index: int, patience: int, is_last: bool = False) -> subprocess.Popen[bytes]:
    """Ends what a killed runner left on its node, if ssh gets there within ``patience`` seconds; gives the
    process that does it. The job's working folder stays for a restart unless ``is_last``."""
    keeps = plan["max_restarts"] and not is_last
    what = f"sweep {plan['id']} 0 keep" if keeps else f"sweep {plan['id']}"
    options = ("-o", f"ConnectTimeout={patience}")
    return _remote(plan, index, what, subprocess.DEVNULL, subprocess.PIPE, options)


def taken_slots(plan: Plan, index: int) -> subprocess.Popen[bytes]:
    """Asks a node which of its slots jobs hold; the process's stdout is the answer, in JSON."""
    what = f"slots {int(plan['nodes'][index]['slots'])}"
    return _remote(plan, index, what, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def collect(plan: Plan, index: int, what: str, requests: int) -> subprocess.Popen[bytes]:
    """Has a node answer on the process's stdout as :mod:`launch.remote.collect.send` says, from what
    ``requests`` holds."""
    return _remote(plan, index, f"{what} {plan['id']}", stdin=requests, stderr=subprocess.PIPE)


def _remote(
    plan: Plan, index: int, what: str, stdin: int, stderr: int, options: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    # A shell line, because only the node's own shell knows its home folder. Nothing of the user's is in it.
    line = f'exec python3 -I -S "$HOME/{plan["remote"]}/__main__.py" {what}'
    node = plan["nodes"][index]
    argv = ["sh", "-c", line] if index == 0 else [SSH[0], *options, *SSH[1:], node["name"], line]
    return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
