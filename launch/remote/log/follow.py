"""The transfer of a job's output and states to a follower: all of the output, or a selection.

A follower is a process of its own on the head, which reads files and writes to its connection. A slow or dead
connection does not affect the job.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

from launch.remote.base import frames, job_dir, timing
from launch.remote.base.frames import NOTICE, RECORD
from launch.remote.base.names import instance_id
from launch.remote.base.payloads import Handover, LogQuery
from launch.remote.base.records import State
from launch.remote.log import segments
from launch.remote.log.lines import Key, Line, Lines
from launch.remote.log.reader import StreamReader
from launch.remote.log.writer import LAUNCHER

__all__ = ["Choice", "follow"]

_POLL, _SOON = 0.03, 0.01
"""Seconds between looks at the records, and shortly after output: at a job's end, the operator waits for the
next look."""
_QUIET = 0.5
"""Seconds after the last output until a beat informs the follower that no more is coming for now."""
_BATCH = 256 * 1024
_NO_END = 1 << 62


class Choice:
    """The selection of output by a ``query``; all output if the query is empty.

    ``ranks``: of these ranks alone; ``nodes`` and ``ids``: of nodes with one of these names or instance ids;
    ``since``: of the last so many seconds; ``tail``: of what the other fields select, the last so many lines
    and what comes after them.
    """

    def __init__(self, query: LogQuery, nodes: list[str], now: float) -> None:
        ranks, names, ids = query.get("ranks"), query.get("nodes"), query.get("ids")
        self._ranks = None if ranks is None else frozenset(ranks)
        self._nodes: frozenset[int] | None = None
        if names is not None or ids is not None:
            named = [index for index, name in enumerate(nodes) if name in (names or ())]
            numbered = [index for index, name in enumerate(nodes) if instance_id(name) in (ids or ())]
            self._nodes = frozenset(named + numbered)
        seconds = query.get("since")
        self._since = None if seconds is None else now - seconds
        self._tail: int | None = query.get("tail")
        self._lines = 0
        """With a tail, number of selected lines from the first segment on."""

    def takes(self, rank: int, node: int, stream: int) -> bool:
        """Return whether output of this rank on this node is wanted; True for notices about all ranks."""
        if rank == LAUNCHER and stream == NOTICE:
            return True
        return (self._ranks is None or rank in self._ranks) and (self._nodes is None or node in self._nodes)

    def first_segment(self, folder: str) -> int:
        """Return the segment to begin with; 0 for the oldest, with a notice of what is missing before."""
        there = segments.numbers(folder)
        if self._since is not None:
            late = [number for number in there if _changed(segments.path(folder, number)) >= self._since]
            return late[0] if late[:1] != there[:1] and late else 0
        self._lines = 0
        for number in reversed(there if self._tail is not None else []):
            reader = StreamReader(folder, number)
            for (_, rank, node, stream, _), record in reader.read((number, _NO_END)):
                if self.takes(rank, node, stream):
                    self._lines += stream == NOTICE or record.count(b"\n", RECORD.size)
            reader.close()
            if self._lines >= (self._tail or 0):
                return number
        return 0

    def beginning(self, reader: StreamReader, end: tuple[int, int], go_on: bool) -> Iterator[bytes]:
        """Yield the wanted records until ``end``, and the beginnings of lines that ``end`` cuts; unless
        reading will ``go_on``, these count as the last lines."""
        if self._since is None and self._tail is None:
            yield from self.records(reader, end)
            return
        lines = Lines()
        fresh: set[Key] = set()
        """Sources with output that is not too old."""
        last: deque[Line] = deque(maxlen=self._tail)
        skipped = self._lines - (self._tail or 0) if self._since is None else 0
        for (stamp, rank, node, stream, _), record in reader.read(end):
            if not self.takes(rank, node, stream):
                continue
            key, data = (rank, node, stream), record[RECORD.size :]
            is_old = self._since is not None and stamp < self._since
            if not is_old:
                fresh.add(key)
            if is_old or skipped > 0:
                skipped -= stream == NOTICE or data.count(b"\n")
                if stream != NOTICE and (is_old or skipped >= 0):
                    lines.skip(stamp, key, data)
                    continue
            for line in _lines(lines, stamp, key, data):
                if line.overwritten or is_old:
                    continue
                if self._tail is None:
                    yield _record(line)
                else:
                    last.append(line)
        half = lines.unfinished()
        if not go_on:
            last.extend(
                Line(line.time, line.key, line.data.rstrip(b"\r")) for line in half if line.key in fresh
            )
            half.clear()
        yield from map(_record, last)
        for line in half:
            yield RECORD.pack(line.time, *line.key, len(line.data)) + line.data

    def records(self, reader: StreamReader, end: tuple[int, int] | None = None) -> Iterator[bytes]:
        """Yield the wanted records among those written so far."""
        for (_, rank, node, stream, _), record in reader.read(end):
            if self.takes(rank, node, stream):
                yield record


class _Out:
    """Buffer of frames, which are written in batches."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._waiting = bytearray()

    def add(self, kind: bytes, payload: bytes) -> None:
        self._waiting += frames.frame(kind, payload)
        if len(self._waiting) >= _BATCH:
            self.flush()

    def flush(self) -> bool:
        """Write the waiting frames; return whether there were any."""
        if not self._waiting:
            return False
        self._write(bytes(self._waiting))
        self._waiting.clear()
        return True


def follow(folder: job_dir.Folder, query: LogQuery, write: Callable[[bytes], None]) -> int:
    """Send the output that ``query`` selects (:class:`Choice`), and every state until the last.

    With ``wait`` false, send only the output so far and the present state. Raise FileNotFoundError
    when there is no such job, and whatever ``write`` raises when nobody listens any more.
    """
    nodes = folder.plan()["nodes"]
    names = [node["name"] for node in nodes]
    ranks = sum(len(node["ranks"]) for node in nodes)
    choice = Choice(query, names, time.time())
    waits = query.get("wait", True)
    out = _Out(write)
    handover: Handover = {"job": folder.job, "nodes": names, "ranks": ranks}
    out.add(frames.JOB, json.dumps(handover).encode())
    watch = job_dir.StateWatch(folder)
    state = watch.state()
    shown: State | None = None
    reader = StreamReader(folder.path, choice.first_segment(folder.path))
    records = choice.beginning(reader, reader.end, waits)
    spoken, is_quiet = time.monotonic(), False
    while True:
        is_last = not waits or state["state"] in job_dir.TERMINAL
        if state != shown and not is_last:
            out.add(frames.STATE, json.dumps(state).encode())
            shown = state
        for record in records:
            out.add(frames.OUT, record)
        if is_last:
            out.add(frames.STATE, json.dumps(state).encode())
            out.flush()
            return 0
        now = time.monotonic()
        if out.flush():
            spoken, is_quiet = now, False
        elif now - spoken > (timing.FOLLOW_BEAT_S if is_quiet else _QUIET):
            out.add(frames.BEAT, b"")
            out.flush()
            spoken, is_quiet = now, True
        time.sleep(_POLL if is_quiet else _SOON)
        state, records = (
            watch.state(),
            choice.records(reader),
        )  # the state first: nothing comes after the last


def _lines(lines: Lines, stamp: float, key: Key, data: bytes) -> Iterator[Line]:
    if key[2] == NOTICE:
        yield from lines.end_rank(*key[:2])
        yield Line(stamp, key, data)
    else:
        yield from lines.feed(stamp, key, data)


def _record(line: Line) -> bytes:
    data = line.data if line.key[2] == NOTICE else line.data + b"\n"
    return RECORD.pack(line.time, *line.key, len(data)) + data


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0
