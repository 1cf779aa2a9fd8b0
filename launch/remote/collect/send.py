"""The listing and sending of a node's files of a job to the operator, directly or by way of the head.

``files JOB`` lists the files, in frames of JSON; the operator's side compares the list with its own files and
requests the rest from ``send JOB``, one JSON line a file: ``[path, [[bytes, sha256], ...]]``, where the pairs
are beginnings of the file that the operator may have already. The node checks in one pass over the file which
of them are true, and sends what follows the longest. So one answer serves for a file that is new, complete,
interrupted in the middle, grown since, or replaced.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

from launch.remote.base import frames, job_dir, timing
from launch.remote.base.files import file_in_memory
from launch.remote.base.payloads import FileEnd, FileRequest, FileStart, Listed
from launch.remote.collect.trees import TREES, is_work, left_files, mtime, walk, walk_work

__all__ = ["BEAT", "DATA", "END", "ENTRIES", "LEFT", "LISTED", "PLAN", "RECORDS", "START", "files", "send"]

ENTRIES = b"e"
"""JSON list of entries: ``["f", path, bytes, mtime_ns]``, ``["d", path]``, ``["l", path, target]``,
``["x", path, reason]`` for what cannot be read and ``["o", path, reason]`` for a socket, pipe or device."""
LEFT = b"w"
"""JSON: :class:`~launch.remote.base.payloads.LeftFiles`, of a listing without the working folder."""
LISTED = b"l"
"""End of the listing. JSON: whether this node has a folder of the job."""
START = b"s"
"""JSON ``{matched, size, mtime_ns}`` of the next requested file: ``matched`` numbers its true beginnings."""
DATA = b"d"
"""The file's bytes, from the end of the longest true beginning."""
END = b"n"
"""JSON ``{sha256}`` of the whole file as it was read, or why it was not read: ``{error}``, ``{gone}``."""
BEAT = frames.BEAT
"""Sign of life while a long file is read."""

PLAN = "job.json"
"""Record that is sent without the values of the user's variables."""
RECORDS = (PLAN, "state.json", "events.jsonl", "exits.jsonl", "history.json", "supervisor.log")
"""Files beside the trees in the job's folder: all on the head, exits.jsonl on every node."""

_CHUNK = 1 << 16
"""Bytes of a read and a write: from 128 KiB on, ext4 took ten times as long for the same file."""
_BATCH = 512


def files(job: str, *, with_work: bool = False) -> int:
    """Send a listing of the job's files on this node; an empty one when the job never ran here. What it left
    in its working folder is listed ``with_work``, and summed up without."""
    base = os.fsencode(job_dir.Folder(job).path)
    batch: list[Listed] = []
    sent = time.monotonic()
    for entry in _entries(base, with_work=with_work):
        batch.append(entry)
        if len(batch) >= _BATCH or time.monotonic() - sent > timing.COLLECT_BEAT_S:
            frames.send_answer(ENTRIES, json.dumps(batch).encode())
            batch, sent = [], time.monotonic()
    frames.send_answer(ENTRIES, json.dumps(batch).encode())
    if not with_work:
        frames.send_answer(LEFT, json.dumps(left_files(job)).encode())
    frames.send_answer(LISTED, json.dumps(os.path.isdir(base)).encode())
    return 0


def _entries(base: bytes, *, with_work: bool) -> Iterator[Listed]:
    for name in RECORDS:
        path = os.path.join(base, name.encode())
        try:
            info = os.lstat(path)
        except OSError:
            continue
        if not stat.S_ISREG(info.st_mode):
            continue
        try:
            size = len(_plan(path)) if name == PLAN else info.st_size
        except OSError as error:
            yield "x", name, error.strerror or str(error)
        else:
            yield "f", name, size, mtime(info)
    for tree in TREES:
        if os.path.lexists(os.path.join(base, tree.encode())):
            yield from walk(base, tree.encode())
    if with_work:
        yield from walk_work(base)


def _plan(path: bytes) -> bytes:
    """Return job.json as it leaves the head. Raise OSError when it is not a plan that this code knows."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return job_dir.shown_plan(data)
    except job_dir.Unreadable as error:
        raise OSError(errno.EINVAL, error.problem) from None


def send(job: str) -> int:
    """Send the files that lines on stdin request, in their order, until stdin ends."""
    base = job_dir.Folder(job).path.encode("utf-8", "surrogateescape")
    for line in sys.stdin.buffer:
        request: FileRequest = json.loads(line)
        path, beginnings = request
        parts = path.split("/")
        if ".." in parts or not (parts[0] in TREES or is_work(parts[0]) or path in RECORDS):
            raise ValueError(f"{path!r} is not a file of the job")
        try:
            whole = os.path.join(base, path.encode("utf-8", "surrogateescape"))
            _send_file(whole, beginnings, is_plan=path == PLAN)
        except FileNotFoundError:
            _send_end({"gone": True})
        except BrokenPipeError:
            raise
        except OSError as error:
            _send_end({"error": error.strerror or str(error)})
    return 0


def _send_end(end: FileEnd) -> None:
    frames.send_answer(END, json.dumps(end).encode())


def _send_file(path: bytes, beginnings: list[tuple[int, str]], *, is_plan: bool = False) -> None:
    # Without blocking: the path may be a pipe by now. An open file stays whole even if it is removed.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "is no longer a file")
        if is_plan:
            shown = file_in_memory(_plan(path))
            os.close(handle)
            handle = shown
        size = os.fstat(handle).st_size
        matched, at, digest = _compare(handle, size, beginnings)
        os.lseek(handle, at, os.SEEK_SET)
        start: FileStart = {"matched": matched, "size": size, "mtime_ns": mtime(info)}
        frames.send_answer(START, json.dumps(start).encode())
        while at < size:
            data = os.read(handle, min(_CHUNK, size - at))
            if not data:
                break  # the file was truncated meanwhile
            digest.update(data)
            frames.send_answer(DATA, data)
            at += len(data)
        _send_end({"sha256": digest.hexdigest()})
    finally:
        os.close(handle)


def _compare(handle: int, size: int, beginnings: list[tuple[int, str]]) -> tuple[list[int], int, Any]:
    """Return the indices of the file's true beginnings, the longest one's end, and the digest up to there."""
    matched: list[int] = []
    best, digest = 0, hashlib.sha256()
    running, at = hashlib.sha256(), 0
    beaten = time.monotonic()
    for number, (length, sha) in sorted(enumerate(beginnings), key=lambda one: one[1][0]):
        if length > size:
            break
        while at < length:
            data = os.read(handle, min(_CHUNK, length - at))
            if not data:
                return matched, best, digest
            running.update(data)
            at += len(data)
            if time.monotonic() - beaten > timing.COLLECT_BEAT_S:
                frames.send_answer(BEAT, b"")
                beaten = time.monotonic()
        if running.hexdigest() == sha:
            matched.append(number)
            best, digest = at, running.copy()
    return matched, best, digest
