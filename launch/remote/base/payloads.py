"""Types of the messages between the operator, a job's head and its nodes, each defined once.

Ranks do not import it, as :mod:`launch.remote.base.records`. Messages between supervisor and runner are
bencoded (:mod:`launch.remote.base.frames`), all others are JSON.
"""

from __future__ import annotations

from typing import Dict, List, Literal, Tuple, TypedDict, Union  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base.health_records import HealthCheck, HealthMode
from launch.remote.base.records import (
    Checks,
    DataRecord,
    EnvironmentRecord,
    Event,
    ExitEvent,
    ForRanks,
    PlannedRank,
    SlotHolder,
    State,
    StateName,
)
from launch.remote.reading import ContentId, Count, JobId, NodeName, Pid, Rank, Ranks, Seconds, UnixTime

__all__ = [
    "Busy",
    "CancelAnswer",
    "Done",
    "EndUploadAnswer",
    "EvictionNotice",
    "FileEnd",
    "FileStart",
    "Handover",
    "Held",
    "Hello",
    "JobListing",
    "JobReport",
    "LeftAnswer",
    "LeftFiles",
    "LogQuery",
    "MpiAnswer",
    "MpiRequest",
    "Note",
    "Notice",
    "PlanExcerpt",
    "RankExit",
    "Ready",
    "ReleaseAnswer",
    "RunnerSpec",
    "SlotRequest",
    "Started",
    "Stop",
    "SweepAnswer",
    "Unfit",
    "UploadProgress",
]

# ruff: noqa: UP006, UP007  (these aliases are evaluated)
Go = Dict[str, Dict[str, str]]
"""Frame GO: by rank, the variables that are known only once every runner is ready."""
Listed = Union[
    Tuple[Literal["f"], str, int, int], Tuple[Literal["d"], str], Tuple[Literal["l", "x", "o"], str, str]
]
"""An entry of a node's listing, see :data:`launch.remote.collect.send.ENTRIES`."""
FileRequest = Tuple[str, List[Tuple[int, str]]]
"""A file to send: its path, and sizes and SHA-256 digests of its possible beginnings."""

# -- frames from a runner to the supervisor -------------------------------------------------------


class Hello(TypedDict):
    """Frame HELLO. A whole node's runner, whose channel is ssh's, has rank -1, no token and no proof."""

    rank: int
    local_rank: int
    node: str
    pid: int
    token: str
    proof: str
    """Proof of :func:`launch.remote.base.frames.hello_words`; empty where the node has no cluster key."""


class Held(TypedDict):
    """Frame HELD, which has no field."""


class Ready(TypedDict):
    """Frame READY, with the reserved ports."""

    ports: list[int]
    network: str
    """As :func:`launch.remote.probe.network_mark.network_mark` returns it; empty where nobody asks."""


class Started(TypedDict):
    """Frame STARTED."""

    pids: list[int]
    time_us: int
    """Time by the node's clock."""


class RankExit(TypedDict):
    """Frame EXIT."""

    rank: int
    status: int
    """128+n for signal n."""
    signal: int
    """0 without one."""
    stopped: int
    """1 where the runner had signalled the rank, else 0."""
    time_us: int
    """Time of the end by the node's clock."""


class Unfit(TypedDict):
    """Frame FAILED."""

    reasons: list[str]


class Busy(TypedDict):
    """Frame BUSY, with all slots of the node that others hold."""

    taken: list[SlotHolder]


class Done(TypedDict):
    """Frame DONE."""

    left: list[int]
    """Pids that even SIGKILL did not end."""
    ended: list[tuple[str, int]]
    """Programs that outlived ranks which ended well, and the job's grace: name and number of processes."""


class EvictionNotice(TypedDict):
    """Frame EVICTION; ``type`` is empty when there is no notice any more."""

    type: str
    at: int
    """Unix seconds by Azure's clock."""
    left_ms: int
    at_once: int
    """0: the job may go on for as long as it can."""


class Notice(TypedDict):
    """Azure's notice that it takes this node: notice.json."""

    id: str
    type: str
    node: NodeName
    not_before: UnixTime
    """By Azure's clock."""
    deadline: float
    """Seconds by this node's monotonic clock."""
    at_once: bool


class Note(TypedDict):
    """Frame NOTE: ``bytes`` and ``lines`` were left out of OUT, ``lost`` bytes are not in the log because of
    ``why``. With none of the three, the log cannot be written from now on."""

    rank: int
    log: str
    bytes: int
    lines: int
    lost: int
    why: str


# -- frames from the supervisor to a runner -------------------------------------------------------


class SlotRequest(TypedDict):
    """Slots of a node that are assigned to a job."""

    job: str
    slots: list[int]
    of: int
    restarts: int
    """Number of launches of the job before: a restart keeps a node that was drained meanwhile."""


class RunnerSpec(SlotRequest, ForRanks):
    """Frame SPEC: what a runner runs, cut from the plan."""

    folder: str
    environment: EnvironmentRecord
    data: list[str]
    """Paths of the staged data that the job reads."""
    snapshot: str
    in_place: list[str]
    """Paths of pushed folders that the job reads where they are stored, for the first runner to check."""
    keep: int
    env: dict[str, str]
    user_env: dict[str, str]
    outputs: list[str]
    identity: str
    """Signed request for the nodes' identity; empty but for the node's first runner of a job that uses it."""
    with_identity: int
    """1 where ranks wait until their node has granted it."""
    first: int
    """1 for the runner of the node's first rank, which checks and samples the node."""
    checks: Checks
    network: int
    """1 where READY has the node's mark of its networks."""
    health: HealthCheck
    ports: int
    grace_ms: int
    rate: int
    burst: int
    ranks: list[PlannedRank]


class Stop(TypedDict):
    """Frame STOP."""

    grace_ms: int


# -- requests to and answers from the head and the nodes ------------------------------------------


class PlanExcerpt(TypedDict):
    """Part of the plan that a :class:`JobReport` shows."""

    command: list[str]
    data: list[DataRecord]
    environment: EnvironmentRecord
    grace_s: Seconds
    health: HealthMode
    max_restarts: Count
    snapshot: ContentId | Literal[""]
    timeout_s: Seconds | None


class _HandedOver(TypedDict):
    job: JobId


class Handover(_HandedOver, total=False):
    """Frame JOB; ``nodes`` and ``ranks`` where the job is followed."""

    nodes: list[NodeName]
    ranks: Ranks


class LogQuery(TypedDict, total=False):
    """Request of ``follow``: which output to send, see :class:`launch.remote.log.follow.Choice`."""

    wait: bool
    since: float | None
    tail: int | None
    ranks: list[int]
    nodes: list[str]
    ids: list[int]


class _JobsListed(TypedDict):
    jobs: list[State]
    left_out: Count


class JobListing(_JobsListed, total=False):
    """Answer of ``list``; code of a former push lacks ``aside``."""

    aside: list[str]
    """What was moved aside because a job had put it in the place of a file of the head, below
    ``~/.ranklift``."""


class JobReport(TypedDict):
    """Answer of ``show``."""

    state: State
    plan: PlanExcerpt
    ranks: dict[NodeName, list[Rank]]
    ends: list[ExitEvent]
    events: list[Event]
    folder: str


class CancelAnswer(TypedDict):
    """Answer of ``cancel``."""

    state: State
    before: StateName
    grace: Seconds
    within: Seconds
    lost: list[NodeName]


class EndUploadAnswer(TypedDict):
    """Answer of ``end-upload``."""

    uploading: bool
    """Whether the job's supervisor was at work still."""


class ReleaseAnswer(TypedDict):
    """Answer of ``release``."""

    state: State


class SweepAnswer(TypedDict):
    """Answer of ``sweep``."""

    ended: Count
    left: list[Pid]


class MpiRequest(TypedDict):
    """Request of ``mpi``: the MPIs the job can use, and a folder to search first."""

    known: list[str]
    first: str


class _Writable(TypedDict):
    unwritable: list[str]


class MpiAnswer(_Writable, total=False):
    """Answer of ``mpi``: ``error``, or ``title`` and ``command``."""

    title: str
    command: str
    error: str


class UploadProgress(TypedDict):
    """Sign of life of ``upload-job``: what was sent so far."""

    files: Count
    bytes: Count


# -- collect --------------------------------------------------------------------------------------


class FileStart(TypedDict):
    """Frame START of a collect; ``matched`` are the indices of the file's true beginnings."""

    matched: list[Count]
    size: Count
    mtime_ns: int


class LeftFiles(TypedDict):
    """Files that a job left in its working folder on a node, outside of its outputs."""

    files: Count
    bytes: Count
    largest: list[tuple[str, Count]]
    """Paths in the working folder, and sizes."""
    whole: bool
    """Whether all of the folder was read."""


class LeftAnswer(TypedDict):
    """Answer of ``left``: jobs that left files on this node."""

    jobs: dict[JobId, LeftFiles]


class FileEnd(TypedDict, total=False):
    """Frame END of a collect, with one of these fields."""

    sha256: ContentId | Literal[""]
    error: str
    gone: bool
