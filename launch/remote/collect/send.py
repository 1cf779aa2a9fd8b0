"""What a node has of a job, listed and sent to the operator: directly, or by way of the head.

``files JOB`` lists what there is, in frames of JSON; the operator's side compares it with what it has and
asks ``send JOB`` for the rest, one JSON line a file: ``[path, [[bytes, sha256], ...]]``, the pairs being
beginnings of the file that it may have already. The node looks which of them are true, in one pass over the
file, and sends what follows the longest. So one answer serves for a file that is new, whole, interrupted in
the middle, grown since, or another one altogether.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

from launch.remote.base import frames, job_dir, timing
from launch.remote.base.whole_file import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launch.remote.base.payloads import FileEnd, FileRequest, FileStart, Listed

__all__ = ["BEAT", "DATA", "END", "ENTRIES", "LISTED", "PLAN", "RECORDS", "START", "TREES", "files", "send"]

ENTRIES = b"e"
"""JSON list of entries: ``["f", path, bytes, mtime_ns]``, ``["d", path]``, ``["l", path, target]``,
``["x", path, reason]`` for what cannot be read and ``["o", path, reason]`` for what is nothing to read."""
LISTED = b"l"
"""The listing is whole. JSON: whether this node has a folder of the job."""
START = b"s"
"""JSON ``{matched, size, mtime_ns}`` of the next file asked for: the numbers of its true beginnings."""
DATA = b"d"
"""The file's bytes, from the end of the longest true beginning."""
END = b"n"
"""JSON ``{sha256}`` of the whole file as it was read, or why it was not: ``{error}``, ``{gone}``."""
BEAT = frames.BEAT
"""Nothing yet: a long file is being read."""

TREES = ("logs", "outputs")
PLAN = "job.json"
"""The record that is sent without the values of the user's variables."""
RECORDS = (PLAN, "state.json", "events.jsonl", "exits.jsonl", "supervisor.log")
"""What lies beside them in the job's folder: all of it on the head, exits.jsonl on every node."""

_CHUNK = 1 << 16
"""What is written here at once, too: from 128 KiB on, ext4 took ten times as long for the same file."""
_BATCH = 512
_SETTLED_NS = 2_000_000_000
"""A file that changed less than this ago may change again within the same tick of its clock."""


def files(job: str) -> int:
    """Send a listing of what this node has of the job; nothing when it never ran here."""
    base = os.fsencode(job_dir.Folder(job).path)
    batch: list[Listed] = []
    told = time.monotonic()
    for entry in _entries(base):
        batch.append(entry)
        if len(batch) >= _BATCH or time.monotonic() - told > timing.COLLECT_BEAT_S:
            frames.send_answer(ENTRIES, json.dumps(batch).encode())
            batch, told = [], time.monotonic()
    frames.send_answer(ENTRIES, json.dumps(batch).encode())
    frames.send_answer(LISTED, json.dumps(os.path.isdir(base)).encode())
    return 0


def _entries(base: bytes) -> Iterator[Listed]:
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
            yield "f", name, size, _mtime(info)
    for tree in TREES:
        if os.path.isdir(os.path.join(base, tree.encode())):
            yield from _walk(base, tree.encode())


def _plan(path: bytes) -> bytes:
    """Return job.json as it leaves the head; raises OSError when it is not a plan that this code knows."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return job_dir.shown_plan(data)
    except job_dir.Unreadable as error:
        raise OSError(errno.EINVAL, error.problem) from None


def _in_memory(data: bytes) -> int:
    """Return a descriptor of a file with this in it, which no folder has."""
    handle = os.memfd_create("ranklift", os.MFD_CLOEXEC)
    write_all(handle, data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _walk(base: bytes, top: bytes) -> Iterator[Listed]:
    left = [top]
    while left:
        folder = left.pop()
        yield "d", _text(folder)
        try:
            with os.scandir(os.path.join(base, folder)) as found:
                names = sorted(entry.name for entry in found)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield "x", _text(folder), error.strerror or str(error)
            continue
        folders = []
        for name in names:
            path = os.path.join(folder, name)
            try:
                info = os.lstat(os.path.join(base, path))
                if stat.S_ISDIR(info.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(info.st_mode):
                    yield "f", _text(path), info.st_size, _mtime(info)
                elif stat.S_ISLNK(info.st_mode):
                    yield "l", _text(path), _text(_target(base, path))
                else:
                    yield "o", _text(path), "is a socket, a pipe or a device"
            except FileNotFoundError:
                continue
            except OSError as error:
                yield "x", _text(path), error.strerror or str(error)
        left += reversed(folders)


def _target(base: bytes, path: bytes) -> bytes:
    """Where a link leads, relative to itself when that is within the job's folder: it moves with the job."""
    target = os.readlink(os.path.join(base, path))
    if not target.startswith(b"/"):
        return target
    whole = os.path.normpath(target)
    for root in (base, os.path.realpath(base)):
        if whole.startswith(root + b"/"):
            return os.path.relpath(whole, os.path.dirname(os.path.join(root, path)))
    return target


def _mtime(info: os.stat_result) -> int:
    """-1 for a file that may still change unseen."""
    return info.st_mtime_ns if time.time_ns() - info.st_mtime_ns > _SETTLED_NS else -1


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def send(job: str) -> int:
    """Sends the files that lines on stdin ask for, in their order; stdin's end is the end."""
    base = job_dir.Folder(job).path.encode("utf-8", "surrogateescape")
    for line in sys.stdin.buffer:
        request: FileRequest = json.loads(line)
        path, beginnings = request
        parts = path.split("/")
        if ".." in parts or (parts[0] not in TREES and path not in RECORDS):
            raise ValueError(f"{path!r} is not the job's")
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
    # Without waiting: it may be a pipe by now. What is opened stays whole though it be removed meanwhile.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "is no longer a file")
        if is_plan:
            shown = _in_memory(_plan(path))
            os.close(handle)
            handle = shown
        size = os.fstat(handle).st_size
        matched, at, digest = _compare(handle, size, beginnings)
        os.lseek(handle, at, os.SEEK_SET)
        start: FileStart = {"matched": matched, "size": size, "mtime_ns": _mtime(info)}
        frames.send_answer(START, json.dumps(start).encode())
        while at < size:
            data = os.read(handle, min(_CHUNK, size - at))
            if not data:
                break  # it was cut short since
            digest.update(data)
            frames.send_answer(DATA, data)
            at += len(data)
        _send_end({"sha256": digest.hexdigest()})
    finally:
        os.close(handle)


def _compare(handle: int, size: int, beginnings: list[tuple[int, str]]) -> tuple[list[int], int, Any]:
    """Which beginnings are the file's, where the longest of them ends, and the digest up to there."""
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
