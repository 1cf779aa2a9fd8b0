"""Push of a snapshot to every node: one stream to the head, which spreads it inside the cluster.

    operator --only what the head lacks--> head --only what somebody lacks--> a tree of all other nodes

A push that changes nothing is one call to the head, which remembers the nodes that reported to hold the
snapshot. That is cheap and nearly always right; ``verify`` makes every node read its copy again and repair
it, as needed after a node was re-imaged or a job changed pushed files. A push that changes little reads and
sends little: nodes share the other files with earlier snapshots (:mod:`launch.remote.store.stored_file`).
"""

from __future__ import annotations

import io
import itertools
import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from launch.access import is_within, open_resolved
from launch.code.node_code import modules, remote_id
from launch.code.push_key import make_credential
from launch.code.snapshot import Entry, Snapshot
from launch.errors import InputError, ManyNodesError, NodeUnreachable, RetryError
from launch.host import Host
from launch.remote.base.messages import unexplained_end
from launch.remote.base.timing import PUSH_SILENT_S, PUSH_SSH, PUSH_STEP_S
from launch.remote.reading import Malformed, parse, read
from launch.remote.store.push_messages import CheckAnswer, OfferAnswer, PushHeader, PushResult
from launch.remote.store.tree_node import BOOT, MARK

__all__ = ["Address", "PushReport", "node_results", "push"]

_Answer = TypeVar("_Answer")

FANOUT = 4
"""Children of each node in the tree: 64 nodes are three hops deep, 300 five, and a node sends four copies."""

_PAYS = 0.8
"""Largest compressed share of a sample that makes compression pay: code does, weights and images do not."""
_SAMPLE = 256 * 1024
_CHUNK = 1 << 20


class Address(Protocol):
    """A node as its neighbours reach it."""

    @property
    def name(self) -> str:
        """Computer name."""

    @property
    def private_ip(self) -> str:
        """Address inside the virtual network."""


@dataclass(frozen=True, slots=True)
class PushReport:
    """The result of a push."""

    snapshot: str
    files: int
    bytes_sent: int
    """Bytes sent from the operator to the head, after compression."""
    seconds: float
    results: Mapping[str, Exception | None] = field(repr=False)
    """Error by node, the head included; ``None`` for a node that holds the whole snapshot now."""


def push(
    snapshot: Snapshot,
    head: Host,
    nodes: Sequence[Address],
    *,
    verify: bool = False,
    timeout: float = PUSH_STEP_S,
    silence: float = PUSH_SILENT_S,
    ssh: Sequence[str] = PUSH_SSH,
    show: Callable[[int, int], object] = lambda *_: None,
) -> PushReport:
    """Put the whole snapshot into ``~/.ranklift/snapshots/<id>/`` on every node.

    ``nodes`` are all nodes to push to, the head among them. ``timeout`` bounds each call in seconds, on this
    side and on the nodes; a node that is silent for ``silence`` seconds, where one reports every two, is
    given up. ``show`` is called with the bytes of contents that the head has got, and with all that it lacks.

    Raise :class:`~launch.errors.ManyNodesError` when the push to some nodes failed: its ``results`` name
    them, and the others hold the snapshot. Raise :class:`~launch.errors.RetryError` when the head could
    not store the snapshot, and what ``head.run`` raises when the head does not answer.
    """
    started = time.monotonic()
    names = [node.name for node in nodes]
    if head.name not in names:
        raise InputError("head", head.name, "is not among the nodes to push to", "push to the head too")
    call = _Calls(head, timeout)
    sent = 0
    results: dict[str, Exception | None] = dict.fromkeys(names)
    if verify or not call.is_everywhere(snapshot, names):
        lacking = call.offer(snapshot)
        blobs = snapshot.blobs()
        missing = [blobs[number] for number in lacking]
        size = sum(blob.size for blob in missing)
        stream = _Stream(_counted(_contents(snapshot, missing), lambda done: show(done, size)))
        errors = call.put(
            snapshot,
            stream,
            {
                "op": "put",
                "zlib": stream.packed,
                "sent": lacking,
                "verify": verify,
                "ssh": list(ssh),
                "fanout": FANOUT,
                "silence": silence,
                "credential": make_credential(),
                "drop": [],
                "head": head.name,
                "nodes": [(node.name, node.private_ip) for node in nodes],
            },
        )
        sent = stream.count
        results = node_results(names, errors)
    report = PushReport(snapshot.id, len(snapshot.entries), sent, time.monotonic() - started, results)
    if any(results.values()):
        raise ManyNodesError("push", results)
    return report


def node_results(names: Iterable[str], reasons: Mapping[str, str | None]) -> dict[str, Exception | None]:
    """Return each node's error, None where the head's ``reasons`` have none. A node that the head does not
    report on has failed."""
    unreported = "the head did not report its result"
    found = {name: reasons.get(name, unreported) for name in names}
    return {name: None if reason is None else NodeUnreachable(name, reason) for name, reason in found.items()}


class _Calls:
    """The calls of a push to the head."""

    def __init__(self, head: Host, timeout: float) -> None:
        self._head, self._timeout = head, timeout

    def is_everywhere(self, snapshot: Snapshot, names: Iterable[str]) -> bool:
        answer = self._one(CheckAnswer, {"op": "check", "id": snapshot.id}, b"")
        return answer["present"] and set(names) <= {self._head.name, *answer["confirmed"]}

    def offer(self, snapshot: Snapshot) -> list[int]:
        packed = zlib.compress(snapshot.manifest, 1)
        header: PushHeader = {"op": "offer", "manifest": len(packed)}
        lacking = self._one(OfferAnswer, header, packed)["blobs"]
        if max(lacking, default=-1) >= len(snapshot.blobs()) or len({*lacking}) < len(lacking):
            raise RetryError(f"{self._head.name}: push: it lacks other files than the snapshot has")
        return lacking

    def put(self, snapshot: Snapshot, stream: _Stream, header: PushHeader) -> dict[str, str | None]:
        packed = zlib.compress(snapshot.manifest, 1)
        answers = self._call(PushResult, {**header, "manifest": len(packed)}, packed, stream)
        return {answer["node"]: answer["error"] for answer in answers}

    def _one(self, kind: type[_Answer], header: PushHeader, body: bytes) -> _Answer:
        answers = self._call(kind, header, body)
        if len(answers) != 1:
            raise RetryError(f"{self._head.name}: push: {len(answers)} answers to {header['op']}")
        return answers[0]

    def _call(
        self, kind: type[_Answer], header: PushHeader, body: bytes, more: _Stream | None = None
    ) -> list[_Answer]:
        code = zlib.compress(modules(), 1)
        start = b"%s %d\n%s" % (remote_id().encode(), len(code), code)
        start += json.dumps({**header, "limit": int(self._timeout)}).encode() + b"\n" + body
        stdin: bytes | IO[bytes] = start
        if more is not None:
            more.prepend(start)
            stdin = io.BufferedReader(more, _CHUNK)
        done = self._head.run(["python3", "-c", BOOT], stdin=stdin, timeout=self._timeout)
        if more is not None and more.error is not None:
            raise more.error
        if done.exit_status != 0:
            reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise RetryError(f"{self._head.name}: push: {unexplained_end(done.exit_status, reason)}")
        lines = (line[len(MARK) :] for line in done.stdout.split(b"\n") if line.startswith(MARK))
        try:
            values = [value for line in lines if (value := parse(line)) != {"t": "beat"}]
            return [read(kind, value) for value in values]
        except Malformed as error:
            raise RetryError(f"{self._head.name}: push: its answer is malformed ({error})") from None


def _contents(snapshot: Snapshot, blobs: Iterable[Entry]) -> Iterator[bytes]:
    """Yield the blobs' bytes in pieces of about a megabyte: as many as planned, though the files may grow.

    Raise :class:`~launch.errors.RetryError` for a file that became shorter or cannot be read.
    """
    pieces, gathered = [], 0
    for piece in itertools.chain.from_iterable(_content(snapshot, blob) for blob in blobs):
        pieces.append(piece)
        gathered += len(piece)
        if gathered >= _CHUNK:
            yield b"".join(pieces)
            pieces, gathered = [], 0
    yield b"".join(pieces)


def _counted(pieces: Iterator[bytes], show: Callable[[int], object]) -> Iterator[bytes]:
    """Yield the pieces; call ``show`` with the bytes of those before each next one."""
    done = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        show(done)


def _content(snapshot: Snapshot, blob: Entry) -> Iterator[bytes]:
    left = blob.size
    try:
        path = os.path.realpath(snapshot.root / blob.path)
        if not is_within(Path(path), snapshot.readable):  # a link took the place of what was planned
            raise RetryError(f"{blob.path} changed while it was being pushed; push again")
        with open(open_resolved(path), "rb", buffering=0) as stream:  # noqa: PTH123  (a handle)
            while left:
                piece = stream.read(min(_CHUNK, left))
                if not piece:
                    raise RetryError(f"{blob.path} changed while it was being pushed; push again")
                left -= len(piece)
                yield piece
    except OSError as error:
        raise RetryError(f"{blob.path} cannot be read any more ({error.strerror}); push again") from error


class _Stream(io.RawIOBase):
    """A readable file made of pieces, compressed when a sample of the first one shows that this pays."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        first = next(pieces, b"")
        sample = first[:_SAMPLE]
        self.packed = bool(sample) and len(zlib.compress(sample, 1)) < _PAYS * len(sample)
        self.count = 0
        self.error: RetryError | None = None
        self._pieces = self._prepared(first, pieces)
        self._rest = memoryview(b"")

    def prepend(self, start: bytes) -> None:
        """Put ``start`` before the pieces; it is neither compressed nor counted."""
        self._rest = memoryview(start)

    def _prepared(self, first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
        packer = zlib.compressobj(1)
        for piece in itertools.chain((first,), pieces):
            data = packer.compress(piece) if self.packed else piece
            self.count += len(data)
            yield data
        if self.packed:
            data = packer.flush()
            self.count += len(data)
            yield data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = memoryview(next(self._pieces))
            except StopIteration:
                return 0
            except RetryError as error:
                self.error = error
                return 0  # the head reports that the rest is missing; this error is the reason
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
