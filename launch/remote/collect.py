"""A job's logs and outputs on their way to the operator: one tar per node, all through the head."""

from __future__ import annotations

import json
import os
import selectors
import struct
import sys
import tarfile
import time
from typing import Any

from launch.remote import jobs, launchers, protocol

__all__ = ["INDEX", "archive", "collect"]

INDEX = struct.Struct("!i?")
"""In front of each PART's bytes: node index, and whether this is its last part (then bytes are its error)."""

_AT_ONCE = 16
_CHUNK = 1 << 18
_SILENT_S = 60.0
_ON_HEAD = ("job.json", "state.json", "events.jsonl", "exits.jsonl", "supervisor.log")


def archive(job: str) -> int:
    """On one node: the job's logs and outputs as a tar on stdout; empty when the job never ran here."""
    folder = jobs.Folder(job)
    with tarfile.open(
        fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT, dereference=False
    ) as tar:
        for name in ("logs", "outputs"):
            if os.path.isdir(folder.file(name)):
                tar.add(folder.file(name), arcname=name)
    return 0


def collect(folder: jobs.Folder) -> int:
    """On the head: its own records first (JSON: name to text), then every node's archive in pieces."""
    plan = folder.plan()
    records = {}
    for name in _ON_HEAD:
        try:
            with open(folder.file(name), encoding="utf-8", errors="replace") as file:
                records[name] = file.read()
        except FileNotFoundError:
            continue
    _send(protocol.JOB, json.dumps(records).encode())
    waiting = list(range(len(plan["nodes"])))
    selector = selectors.DefaultSelector()
    running: dict[int, list[Any]] = {}
    while waiting or running:
        while waiting and len(running) < _AT_ONCE:
            index = waiting.pop(0)
            process = launchers.archive(plan, index)
            assert process.stdout is not None  # noqa: S101  a pipe by construction
            selector.register(process.stdout, selectors.EVENT_READ, index)
            running[index] = [process, time.monotonic()]
        for key, _ in selector.select(1.0):
            process = running[key.data][0]
            data = os.read(process.stdout.fileno(), _CHUNK)
            if data:
                running[key.data][1] = time.monotonic()
                _send(protocol.PART, INDEX.pack(key.data, False) + data)
                continue
            selector.unregister(process.stdout)
            _end(process, key.data)
            del running[key.data]
        for index, (process, heard) in list(running.items()):
            if time.monotonic() - heard > _SILENT_S:
                selector.unregister(process.stdout)
                process.kill()
                _end(process, index)
                del running[index]
    return 0


def _end(process: Any, index: int) -> None:
    words = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
    status = process.wait()
    process.stdout.close()
    process.stderr.close()
    error = (words[-1] if words else f"ended with status {status}") if status else ""
    _send(protocol.PART, INDEX.pack(index, True) + error.encode())


def _send(kind: bytes, payload: bytes) -> None:
    data = memoryview(protocol.frame(kind, payload))
    while data:
        data = data[os.write(1, data) :]
