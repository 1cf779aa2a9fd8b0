"""What following a job tells: lines of its ranks and changes of its state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from launch.errors import JobFailed
from launch.remote import protocol
from launch.remote.jobs import TERMINAL
from launch.remote.records import LAUNCHER

__all__ = ["Event", "Failure", "JobState", "LogLine", "Reader", "StateChange", "StateName"]

StateName = Literal["QUEUED", "STARTING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "LOST"]
_STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}


@dataclass(frozen=True, slots=True)
class Failure:
    """The first rank that failed, or the launcher when no rank did by itself."""

    rank: int | None
    node: str | None
    status: int
    last_lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobState:
    """Where a job is. ``exit_status`` is its first failing rank's; 128+n for signal n."""

    job: str
    name: str
    kind: str
    state: StateName
    reason: str
    exit_status: int | None
    nodes: tuple[str, ...]
    ranks: int
    port: int | None
    created: datetime
    started: datetime | None
    ended: datetime | None
    failure: Failure | None
    display_name: str = ""
    experiment: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    """How often it was launched anew after a failure."""
    place: int | None = None
    """In its head's queue, 1 for the next; None unless it is QUEUED."""
    waits_for: tuple[str, ...] = ()
    """The jobs that hold what it needs, or come before it, while it is QUEUED."""

    @property
    def is_terminal(self) -> bool:
        """Whether it will never change again."""
        return self.state in TERMINAL

    def check(self) -> None:
        """Raises :class:`~launch.errors.JobFailed` when the job ended otherwise than SUCCEEDED."""
        if self.is_terminal and self.state != "SUCCEEDED":
            raise JobFailed(
                self.job, self.state, 255 if self.exit_status is None else self.exit_status, self.reason
            )

    @classmethod
    def from_dict(cls, state: Any) -> JobState:
        """From the head's state.json."""
        failure = state["failure"]
        return cls(
            job=state["job"],
            name=state["name"],
            kind=state["kind"],
            state=state["state"],
            reason=state["reason"],
            exit_status=state["exit_status"],
            nodes=tuple(state["nodes"]),
            ranks=state["ranks"],
            port=state["port"],
            created=_time(state["created"]) or datetime.fromtimestamp(0, UTC),
            started=_time(state["started"]),
            ended=_time(state["ended"]),
            failure=failure
            and Failure(failure["rank"], failure["node"], failure["status"], tuple(failure["last_lines"])),
            display_name=state.get("display_name", ""),
            experiment=state.get("experiment", ""),
            description=state.get("description", ""),
            tags=dict(state.get("tags", {})),
            restarts=state.get("restarts", 0),
            place=state.get("place"),
            waits_for=tuple(state.get("waits_for", ())),
        )


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line (or, at the end, what there is of it) that a rank wrote."""

    time: datetime
    """By the head's clock."""
    rank: int | None
    """None for what a launcher (mpirun, ssh, a runner) says."""
    node: str
    stream: Literal["stdout", "stderr"]
    data: bytes
    """Without its line end; a carriage return ends a line as well."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """The job's state became another."""

    state: JobState


Event = LogLine | StateChange


class Reader:
    """Turns what the head sends into events; :attr:`state` is the newest state it told."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self.state: JobState | None = None
        self._on_event = on_event
        self._decoder = protocol.Decoder()
        self._started: dict[tuple[int, int, int], tuple[datetime, bytes]] = {}
        self._nodes: tuple[str, ...] = ()
        self._early: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """The next bytes from the head's stdout."""
        for kind, payload in self._decoder.feed(data):
            if kind == protocol.OUT:
                if self._nodes:
                    self._output(payload)
                else:  # of a job that has ended: its nodes are told last
                    self._early.append(payload)
            elif kind == protocol.STATE:
                state = JobState.from_dict(json.loads(payload))
                self._nodes = state.nodes
                early, self._early = self._early, []
                for record in early:
                    self._output(record)
                if state.is_terminal:
                    self._finish_lines()
                if state != self.state:
                    self.state = state
                    self._on_event(StateChange(state))

    def _output(self, record: bytes) -> None:
        stamp, rank, node, stream, _ = protocol.RECORD.unpack_from(record)
        when = datetime.fromtimestamp(stamp, UTC)
        key = (rank, node, stream)
        begun, text = self._started.pop(key, (when, b""))
        text += record[protocol.RECORD.size :]
        *lines, rest = _cut(text)
        for line in lines:
            self._line(key, begun, line)
            begun = when
        if rest:
            self._started[key] = (begun, rest)

    def _finish_lines(self) -> None:
        for key, (when, text) in self._started.items():
            self._line(key, when, text.rstrip(b"\r"))
        self._started.clear()

    def _line(self, key: tuple[int, int, int], when: datetime, text: bytes) -> None:
        rank, node, stream = key
        name = self._nodes[node] if node < len(self._nodes) else str(node)
        self._on_event(LogLine(when, None if rank == LAUNCHER else rank, name, _STREAMS[stream], text))


def _cut(text: bytes) -> list[bytes]:
    r"""Lines, and last what has no end yet; a final ``\r`` may still become ``\r\n``, so it waits.

    >>> _cut(b"a\r\nb\rc\n"), _cut(b"10 %\r20 %\r"), _cut(b"x")
    ([b'a', b'b', b'c', b''], [b'10 %', b'20 %\r'], [b'x'])
    """
    waits = text.endswith(b"\r")
    lines = (text[:-1] if waits else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if waits:
        lines[-1] += b"\r"
    return lines


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
