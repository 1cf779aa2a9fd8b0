"""A job's output and states on their way to somebody who looks: all of it, or what they asked for.

A follower is a process of its own on the head, which reads files and writes to its connection. However slow
or dead that is, the job knows nothing of it.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from typing import TYPE_CHECKING

from launch.remote.base import frames, job_dir, timing
from launch.remote.base.frames import NOTICE, RECORD
from launch.remote.base.names import instance_id
from launch.remote.log import segments
from launch.remote.log.lines import Line, Lines
from launch.remote.log.reader import StreamReader
from launch.remote.log.writer import LAUNCHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from launch.remote.base.payloads import Handover, LogQuery
    from launch.remote.base.records import State
    from launch.remote.log.lines import Key

__all__ = ["Choice", "follow"]

_POLL = 0.03
_QUIET = 0.5
"""Seconds after the last output until the other side is informed that nothing more is on its way for now."""
_BATCH = 256 * 1024
_NO_END = 1 << 62


class Choice:
    """Which output is wanted: of all if ``query`` says nothing.

    ``ranks``: these ranks' alone; ``nodes`` and ``ids``: of nodes with one of these names or instance ids;
    ``since``: of the last so many seconds; ``tail``: of what the others leave the last so many lines, and
    what comes after them.
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
        """With a tail, how many there are from the first segment on."""

    def takes(self, rank: int, node: int, stream: int) -> bool:
        """Whether output of this rank on this node is wanted; notices of what all ranks lack always are."""
        if rank == LAUNCHER and stream == NOTICE:
            return True
        return (self._ranks is None or rank in self._ranks) and (self._nodes is None or node in self._nodes)

    def first_segment(self, folder: str) -> int:
        """The segment to begin with; 0 for the oldest, and for saying what there was before that."""
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
        """The wanted records among those until ``end``, and what lines that are cut there began with.

        Unless it will ``go_on``, the latter are the last lines.
        """
        if self._since is None and self._tail is None:
            yield from self.records(reader, end)
            return
        lines = Lines()
        last: deque[Line] = deque(maxlen=self._tail)
        skipped = self._lines - (self._tail or 0) if self._since is None else 0
        for (stamp, rank, node, stream, _), record in reader.read(end):
            if not self.takes(rank, node, stream):
                continue
            key, data = (rank, node, stream), record[RECORD.size :]
            is_old = self._since is not None and stamp < self._since
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
            last.extend(Line(line.time, line.key, line.data.rstrip(b"\r")) for line in half)
            half.clear()
        yield from map(_record, last)
        for line in half:
            yield RECORD.pack(line.time, *line.key, len(line.data)) + line.data

    def records(self, reader: StreamReader, end: tuple[int, int] | None = None) -> Iterator[bytes]:
        """The wanted ones of the records that are there now."""
        for (_, rank, node, stream, _), record in reader.read(end):
            if self.takes(rank, node, stream):
                yield record


class _Out:
    """Frames on their way, many in one piece."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._waiting = bytearray()

    def add(self, kind: bytes, payload: bytes) -> None:
        self._waiting += frames.frame(kind, payload)
        if len(self._waiting) >= _BATCH:
            self.flush()

    def flush(self) -> bool:
        """Whether there was anything."""
        if not self._waiting:
            return False
        self._write(bytes(self._waiting))
        self._waiting.clear()
        return True


def follow(folder: job_dir.Folder, query: LogQuery, write: Callable[[bytes], None]) -> int:
    """Sends what :class:`Choice` says of the output from its beginning, and every state until the last.

    With ``wait`` false only what is there now, and the state that the job is in. Raises FileNotFoundError
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
    shown: State | None = None
    watch = job_dir.StateWatch(folder)
    state = watch.state()
    if waits and state["state"] not in job_dir.TERMINAL:
        out.add(frames.STATE, json.dumps(state).encode())
        shown = state
    reader = StreamReader(folder.path, choice.first_segment(folder.path))
    for record in choice.beginning(reader, reader.end, waits):
        out.add(frames.OUT, record)
    if not waits:
        out.add(frames.STATE, json.dumps(state).encode())
        out.flush()
        return 0
    out.flush()
    spoken = time.monotonic()
    is_quiet = False
    while True:
        now = time.monotonic()
        state = watch.state()
        if state["state"] not in job_dir.TERMINAL and state != shown:
            out.add(frames.STATE, json.dumps(state).encode())
            shown = state
        for record in choice.records(reader):
            out.add(frames.OUT, record)
        if state["state"] in job_dir.TERMINAL:
            out.add(frames.STATE, json.dumps(state).encode())
            out.flush()
            return 0
        if out.flush():
            spoken, is_quiet = now, False
        elif now - spoken > (timing.FOLLOW_BEAT_S if is_quiet else _QUIET):
            out.add(frames.BEAT, b"")
            out.flush()
            spoken, is_quiet = now, True
        time.sleep(_POLL)


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
