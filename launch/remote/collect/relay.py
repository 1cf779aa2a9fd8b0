"""The head's part in a collect: query all nodes of the job at once and forward their answers."""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import struct
import subprocess
import sys
import time

from launch.remote.base import frames, job_dir, timing
from launch.remote.base.files import file_in_memory
from launch.remote.base.records import Plan
from launch.remote.head.runners.node_command import start_on_node
from launch.remote.login import Login

__all__ = ["NODES", "PART", "PIECE", "relay"]

NODES = b"N"
"""JSON list: names of the job's nodes, the head first. A node's number is its index in the list."""
PIECE = b"P"
"""A piece of one node's answer (:data:`PART`)."""
PART = struct.Struct("!i?")
"""Header of a piece: the node, and whether the piece is its last (which holds its error, or nothing)."""

_AT_ONCE = 32
_CHUNK = 1 << 16
_SET_PIPE_SIZE = 1031
_PIPE_SIZE = 1 << 20


def relay(job: str, what: str, *more: str) -> int:
    """Run ``files`` with ``more`` words on every node, or ``send`` on those that stdin's lines name before
    each request."""
    folder = job_dir.Folder(job)
    plan = folder.plan()
    _settle(folder)
    frames.send_answer(NODES, json.dumps([node["name"] for node in plan["nodes"]]).encode())
    requests = dict.fromkeys(range(len(plan["nodes"])), b"") if what == "files" else _requests()
    waiting = list(requests)
    running: dict[int, _Answer] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                index = waiting.pop(0)
                command = " ".join((what, plan["id"], *more))
                running[index] = _Answer(plan, index, command, requests.pop(index))
                selector.register(running[index].stdout, selectors.EVENT_READ, index)
            for key, _ in selector.select(1.0):
                data = os.read(key.fd, _CHUNK)
                if data:
                    running[key.data].heard = time.monotonic()
                    own = running[key.data].login.feed(data)
                    frames.send_answer(PIECE, PART.pack(key.data, False) + own)
                else:
                    selector.unregister(key.fd)
                    frames.send_answer(PIECE, PART.pack(key.data, True) + running.pop(key.data).end())
            for index, answer in list(running.items()):
                if time.monotonic() - answer.heard > timing.COLLECT_SILENT_S:
                    selector.unregister(answer.stdout)
                    frames.send_answer(PIECE, PART.pack(index, True) + running.pop(index).give_up())
    return 0


def _settle(folder: job_dir.Folder) -> None:
    """Write LOST to state.json if the job's supervisor is gone, so that the collected record has it."""
    try:
        folder.state()
    except (OSError, ValueError, KeyError):
        return


def _requests() -> dict[int, bytes]:
    found: dict[int, list[bytes]] = {}
    for line in sys.stdin.buffer:
        index, _, request = line.partition(b" ")
        found.setdefault(int(index), []).append(request)
    return {index: b"".join(lines) for index, lines in found.items()}


class _Answer:
    """The answer of a command that runs on one node."""

    def __init__(self, plan: Plan, index: int, command: str, requests: bytes) -> None:
        handle = file_in_memory(requests)
        try:
            self._process = start_on_node(plan, index, command, stdin=handle, stderr=subprocess.PIPE)
        finally:
            os.close(handle)
        assert self._process.stdout is not None  # noqa: S101  a pipe by construction
        self.stdout = self._process.stdout.fileno()
        self.heard = time.monotonic()
        self.login = Login()
        _widen(self.stdout)

    def end(self) -> bytes:
        """Wait for the command; return its error, or nothing when it succeeded."""
        _, errors = self._process.communicate()
        lines = errors.strip().splitlines()
        status = self._process.returncode
        problem = self.login.problem.encode() or b"ended with status %d" % status
        return (lines[-1] if lines else problem) if status or not self.login.is_over else b""

    def give_up(self) -> bytes:
        """Kill the command; return the error."""
        self._process.kill()
        self._process.communicate()
        return f"sent nothing for {timing.COLLECT_SILENT_S:g} s".encode()


def _widen(pipe: int) -> None:
    """Enlarge a pipe where the node's limits allow it, for fewer and larger reads."""
    try:
        fcntl.fcntl(pipe, _SET_PIPE_SIZE, _PIPE_SIZE)
    except OSError:
        return
