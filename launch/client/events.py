"""Events of a followed job: lines of its ranks and changes of its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from launch.errors import JobFailed
from launch.numbers import counted
from launch.remote.base import frames
from launch.remote.base.job_dir import TERMINAL
from launch.remote.base.payloads import Handover
from launch.remote.base.records import State, StateName
from launch.remote.log.lines import Line, Lines
from launch.remote.log.writer import LAUNCHER
from launch.remote.reading import parse, read

__all__ = ["Event", "Failure", "JobState", "LogLine", "Quiet", "Reader", "StateChange", "StateName"]

StreamName = Literal["stdout", "stderr", "notice"]
_LAST_TIME = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_STREAMS: dict[int, StreamName] = {1: "stdout", 2: "stderr", frames.NOTICE: "notice"}


@dataclass(frozen=True, slots=True)
class Failure:
    """The first rank that failed, or the launcher when no rank failed by itself."""

    rank: int | None
    node: str | None
    status: int
    last_lines: tuple[str, ...]

    @property
    def who(self) -> str:
        """The rank and its node, or the launcher, in words.

        >>> Failure(3, "node000001", 9, ()).who, Failure(None, None, 1, ()).who
        ('rank 3 on node000001', 'the launcher')
        """
        if self.rank is None:
            return self.node or "the launcher"
        return f"rank {self.rank}" + (f" on {self.node}" if self.node else "")


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's state. ``exit_status`` is its first failing rank's; 128+n for signal n."""

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
    place: int | None = None
    """The job's position in its head's queue, 1 for the next; None unless it is QUEUED."""
    waits_for: tuple[str, ...] = ()
    """While QUEUED: the jobs that hold what this one needs, or come before it."""
    cancelling: bool = False
    """Whether its cancellation was requested, as far as ``fab job`` and ``fab jobs`` know."""
    uploading: bool = False
    """Whether its outputs are still sent although it was cancelled, as far as those know."""

    @property
    def is_terminal(self) -> bool:
        """Whether the state is final."""
        return self.state in TERMINAL

    def check(self) -> None:
        """Raise :class:`~launch.errors.JobFailed` when the job ended otherwise than SUCCEEDED."""
        if self.is_terminal and self.state != "SUCCEEDED":
            raise JobFailed(
                self.job, self.state, 255 if self.exit_status is None else self.exit_status, self.reason
            )

    @classmethod
    def from_dict(cls, state: State) -> JobState:
        """Return the state that the head's state.json holds."""
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
            created=datetime.fromtimestamp(state["created"], UTC),
            started=_time(state["started"]),
            ended=_time(state["ended"]),
            failure=failure
            and Failure(failure["rank"], failure["node"], failure["status"], tuple(failure["last_lines"])),
            display_name=state["display_name"],
            experiment=state["experiment"],
            description=state["description"],
            tags=state["tags"],
            restarts=state["restarts"],
            place=state["place"],
            waits_for=tuple(state["waits_for"]),
            cancelling=state.get("cancelling", False),
            uploading=bool(state.get("uploading")),
        )


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a rank wrote; the last may lack its line end."""

    time: datetime
    rank: int | None
    """None for output of a launcher (mpirun, ssh, a runner)."""
    node: str
    stream: StreamName
    """``notice``: not the rank's output but a remark about it, such as how many lines were left out."""
    data: bytes
    """The line without its end; a carriage return ends a line too."""
    overwritten: bool = False
    """Whether a carriage return alone ended the line, so that a terminal would overwrite it with the next."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of the job's state."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Quiet:
    """A sign that no more events are pending for now."""


Event = LogLine | StateChange | Quiet


class Reader:
    """A decoder from the head's bytes to events, with the newest :attr:`state`; ``on_job`` gets the names of
    the job's nodes and its number of ranks before the first event."""

    def __init__(
        self,
        on_event: Callable[[Event], None],
        on_job: Callable[[tuple[str, ...], int], None] | None = None,
        job: str | None = None,
    ) -> None:
        """Refuse the state of another ``job``: who gets a state may cancel the job that it names."""
        self._of = job
        self.state: JobState | None = None
        self._on_event, self._on_job = on_event, on_job
        self._decoder = frames.Decoder()
        self._lines = Lines()
        self._nodes: tuple[str, ...] = ()
        self._ranks = 0

    def feed(self, data: bytes) -> None:
        """Decode the next bytes of the head's stdout."""
        for kind, payload in self._decoder.feed(data):
            if kind == frames.OUT:
                self._output(payload)
            elif kind == frames.BEAT:
                self._on_event(Quiet())
            elif kind == frames.JOB:
                self._job(read(Handover, parse(payload)))
            elif kind == frames.STATE:
                state = JobState.from_dict(read(State, parse(payload)))
                if self._of not in (None, state.job):
                    raise frames.ProtocolError(f"the state of job {state.job} in place of {self._of}'s")
                if state.is_terminal:
                    self.end()
                if state != self.state:
                    self.state = state
                    self._on_event(StateChange(state))

    def end(self) -> None:
        """End the stream: report lines without a line end as they are."""
        for line in self._lines.unfinished():
            for last in self._lines.end(line.key):
                self._line(last)

    def _job(self, job: Handover) -> None:
        if "nodes" not in job:
            return
        if self._nodes:
            raise frames.ProtocolError("the nodes of the job a second time")
        self._nodes, self._ranks = tuple(job["nodes"]), job.get("ranks", 0)
        if self._on_job is not None:
            self._on_job(self._nodes, self._ranks)

    def _output(self, record: bytes) -> None:
        if len(record) < frames.RECORD.size:
            raise frames.ProtocolError(f"a line of {len(record)} bytes")
        stamp, rank, node, stream, _ = frames.RECORD.unpack_from(record)
        if stream not in _STREAMS or not 0 <= stamp <= _LAST_TIME:
            raise frames.ProtocolError(f"a line of stream {stream} at {stamp}")
        # What is kept of each source, here and where events go, has the job's ranks and nodes as its bound.
        if not (LAUNCHER <= rank < self._ranks and 0 <= node < len(self._nodes)):
            has = f"{counted(self._ranks, 'rank')} on {counted(len(self._nodes), 'node')}"
            raise frames.ProtocolError(f"a line of rank {rank} on node {node} of a job of {has}")
        data = record[frames.RECORD.size :]
        if stream == frames.NOTICE:
            for line in self._lines.end_rank(rank, node):
                self._line(line)
            self._line(Line(stamp, (rank, node, stream), data))
            return
        for line in self._lines.feed(stamp, (rank, node, stream), data):
            self._line(line)

    def _line(self, line: Line) -> None:
        rank, node, stream = line.key
        when = datetime.fromtimestamp(line.time, UTC)
        who = None if rank == LAUNCHER else rank
        self._on_event(LogLine(when, who, self._nodes[node], _STREAMS[stream], line.data, line.overwritten))


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
