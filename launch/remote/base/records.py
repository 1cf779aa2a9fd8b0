"""Types of the records that a job leaves on its head and its nodes, each JSON and defined here once.

What ranks import has these names under ``TYPE_CHECKING`` alone: importing :mod:`typing` takes longer than a
rank's runner takes to start. Messages are in :mod:`launch.remote.base.payloads`.
"""

from __future__ import annotations

from typing import Dict, List, Literal, Tuple, TypedDict, Union  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base.health_records import HealthCheck, HealthEvent, ProbeEvent, ProbeOrder, Timed
from launch.remote.base.phase_records import Phase, PhaseEvent, PlannedPrice
from launch.remote.reading import ContentId, Count, ExitStatus, JobId, NodeName, Pid, Rank, Seconds, UnixTime

__all__ = [
    "BARE",
    "Checks",
    "CommandLine",
    "DataRecord",
    "End",
    "EnvironmentRecord",
    "ExitEvent",
    "Failure",
    "FailureEvent",
    "ForRanks",
    "NodeEvent",
    "NodeExit",
    "Plan",
    "PlannedNode",
    "PlannedPrice",
    "PlannedRank",
    "Process",
    "QueueEntry",
    "RankEnd",
    "Reservation",
    "RestartEvent",
    "ShownPlan",
    "State",
    "StateEvent",
    "UploadEvent",
    "UploadRecord",
    "data_entry",
]

StateName = Literal["QUEUED", "STARTING", "RUNNING", "SUCCEEDED", "INCOMPLETE", "FAILED", "CANCELLED", "LOST"]
Version = Literal[1]
"""Version of the plan, as in :data:`launch.remote.base.job_dir.PLAN_VERSION`."""
SlotHolder = Tuple[int, str]  # noqa: UP006  (evaluated)
"""A slot and its holder: a job's id, or a command that removes the node."""
Taken = Dict[str, List[SlotHolder]]  # noqa: UP006  (evaluated)
"""By node, the slots that other jobs hold."""


class PlannedRank(TypedDict):
    """One process that the system starts."""

    rank: int
    task: str
    """Type of the rank's TensorFlow task; empty without one."""
    env: dict[str, str]


class PlannedNode(TypedDict):
    """One node's part in a job; the first node is the head."""

    name: str
    private_ip: str
    slots: int
    reserve: int
    """Number of slots that the job holds on the node."""
    env: dict[str, str]
    ranks: list[PlannedRank]


class CommandLine(TypedDict):
    """An mpirun command line and the variables it needs."""

    argv: list[str]
    env: dict[str, str]


class Checks(TypedDict, total=False):
    """Requirements that a node must meet before the first rank starts; empty when nothing is checked."""

    python: str
    setup: str
    requires: list[str]
    shm_bytes: int
    needs_python: int
    script: str
    """Path of the script that every rank runs, from the working folder; empty where nothing looks for it."""
    gpu: str
    """Compute capability of the nodes' GPUs, which the job's torch has to support; missing without either."""
    recorder: int
    """1 where that torch's flight recorder is switched on; missing elsewhere."""


class EnvironmentRecord(TypedDict):
    """What ranks run in."""

    kind: Literal["bare", "python", "image"]
    id: ContentId | Literal[""]
    """Hex digits: 16 of what was asked for, 8 of its own; empty for the nodes themselves."""
    path: str
    """Its folder, the same on every node: ``~/.ranklift/environments/ID``; empty for the nodes themselves."""
    runtime: str
    """What starts ranks: ``bare``, or a container runtime of :mod:`launch.remote.node.runtimes`."""
    title: str
    """For people."""


class DataRecord(TypedDict):
    """Data that the nodes of a job have got for one of its inputs."""

    name: str
    """Name of the input."""
    id: ContentId
    """Content of its address, by what storage says of it; the folder's name in the nodes' caches."""
    path: str
    """The file itself, or the folder, the same on every node; it begins with :func:`data_entry`."""
    bytes: Count
    files: Count
    url: str
    """Its address without secrets."""
    seconds: Seconds
    """Duration of the staging; 0 where the nodes held the data."""


def data_entry(data: DataRecord) -> str:
    """Return the path of data in the nodes' cache, or in that of their shared folder."""
    return data["path"].partition(data["id"])[0] + data["id"]


class UploadRecord(TypedDict):
    """Where outputs of a job go."""

    name: str
    """Name of the output; empty for all that the job leaves."""
    url: str
    """Folder in storage, or the blob of an output that is a file."""


BARE: EnvironmentRecord = {"kind": "bare", "id": "", "path": "", "runtime": "bare", "title": ""}
"""The nodes themselves, also where a plan of older code does not name an environment."""


class ForRanks(TypedDict):
    """Fields of the plan that each runner gets as they are."""

    cwd: str
    argv: list[str]
    expand: list[str]
    python: str
    first_port: int
    drop: list[str]
    defaults: dict[str, str]
    files: dict[str, str]
    infiniband: int
    """1 if the nodes' VM size has InfiniBand."""
    paths: dict[str, str]
    hostfile: str
    metrics: dict[str, str]
    """By name, a pattern with one group for the number in ranks' lines."""


class _Plan(ForRanks):
    environment: EnvironmentRecord
    data: list[DataRecord]
    uploads: list[UploadRecord]
    upload_every_s: float | None
    """Seconds between two uploads while the job runs; None for one at its end."""
    version: Version
    id: str
    name: str
    display_name: str
    experiment: str
    description: str
    tags: dict[str, str]
    kind: str
    per_node: bool
    command: list[str]
    snapshot: str
    """Id of the code."""
    snapshots: list[str]
    """Ids of all that was pushed for the job, the code among it."""
    remote: str
    checks: Checks
    health: HealthCheck
    probe: ProbeOrder
    stages: list[Phase]
    """What was brought to the nodes before the job was submitted; missing in plans of older code."""
    setup: str
    output_folders: list[str]
    services: list[int]
    env: dict[str, str]
    master_addr: str
    port: int
    timeout_s: float | None
    start_limit_s: float
    grace_s: float
    max_restarts: int
    hang_after_s: float | None
    """Seconds without output of any rank after which the job is looked at and, unless it moves, ended."""
    py_spy: str
    """Path below the home folder of the program that reads Python's stacks; empty without one."""
    min_nodes: int | None
    machinefile: str
    mpirun: dict[str, CommandLine]
    """By MPI."""
    identity: str | None
    """Signed request for the nodes' identity; None where it is not shown, empty where the job uses none."""
    nodes: list[PlannedNode]
    node_price: PlannedPrice | None
    """None where no price is known; missing in plans of older code."""


class Plan(_Plan):
    """The plan, all that a job runs: job.json on the head, and the request to submit the job."""

    user_env: dict[str, str]
    """Variables of the user; their values may be secrets."""


class ShownPlan(_Plan):
    """A plan as it is printed and collected, without the values of the user's variables."""

    user_env: dict[str, None]


class Process(TypedDict):
    """Identity of a process, distinct from a later one with the same pid, also after a reboot."""

    pid: Pid
    started: int
    boot: str


class Failure(TypedDict):
    """Failure of a launch; ``rank`` is None for the launcher."""

    rank: Rank | None
    node: NodeName | None
    status: ExitStatus
    last_lines: list[str]


class End(TypedDict):
    """How a job's ranks ended, for its state."""

    state: StateName
    reason: str
    exit_status: ExitStatus | None
    failure: Failure | None


class _Passing(TypedDict, total=False):
    cancelling: bool
    """Whether a cancel is pending; in answers alone, not in state.json."""
    pending: End
    """The state to come, while the outputs are uploaded."""
    uploading: list[str]
    """Addresses to which a cancelled job's supervisor sends its outputs, as long as that runs."""


class State(_Passing):
    """State of a job: state.json."""

    job: JobId
    name: str
    kind: str
    display_name: str
    experiment: str
    description: str
    tags: dict[str, str]
    state: StateName
    reason: str
    exit_status: ExitStatus | None
    created: UnixTime
    started: UnixTime | None
    ended: UnixTime | None
    port: Count | None
    nodes: list[NodeName]
    ranks: Count
    failure: Failure | None
    restarts: Count
    place: Count | None
    waits_for: list[JobId]
    supervisor: Process | None
    node_price: PlannedPrice | None
    """The plan's."""


class StateEvent(Timed):
    """A change of the job's state, to this one."""

    event: Literal["state"]
    state: StateName
    reason: str


class RankEnd(Timed):
    """End of a rank: a line of exits.jsonl on the head."""

    rank: Rank
    node: NodeName
    status: ExitStatus
    signal: Count | None
    stopped: bool
    """Whether the runner had signalled the rank before."""
    attempt: Count
    """0 for the job's first launch."""


class ExitEvent(RankEnd):
    """End of a rank."""

    event: Literal["exit"]


class FailureEvent(Failure, Timed):
    """Event of a failed launch."""

    event: Literal["failure"]


class RestartEvent(Timed):
    """Another launch of the job."""

    event: Literal["restart"]
    count: Count
    reason: str


class NodeEvent(Timed):
    """Loss of a node, whose runner ended or went silent; or Azure's notice that it takes the node, or the
    notice's withdrawal."""

    event: Literal["lost-node", "eviction"]
    node: NodeName
    reason: str


class UploadEvent(Timed):
    """An upload of the job's outputs."""

    event: Literal["upload"]
    urls: dict[str, str]
    """By output, empty for the whole, where it is."""
    files: Count
    kept: Count
    """Number of files that storage had already."""
    bytes: Count
    seconds: Seconds
    errors: dict[NodeName, list[str]]
    """By node, what is not in storage and why."""


Event = Union[  # noqa: UP007  (evaluated)
    StateEvent,
    ExitEvent,
    FailureEvent,
    RestartEvent,
    NodeEvent,
    HealthEvent,
    ProbeEvent,
    UploadEvent,
    PhaseEvent,
]
"""A line of events.jsonl."""


class NodeExit(TypedDict):
    """End of a rank: a line of exits.jsonl on the rank's own node."""

    rank: int
    status: int
    stopped: bool
    time: float


class Reservation(TypedDict):
    """Number of slots that a job needs on a node, of the number that the node has."""

    need: int
    of: int


class QueueEntry(TypedDict):
    """A job that waits or runs: an element of queue.json."""

    job: str
    process: Process
    nodes: dict[str, Reservation]
    slots: dict[str, list[int]] | None
    """By node, the slots assigned to the job; None while it waits."""
    port: int | None
    holds: bool
    """Whether the job's runners hold the assigned slots."""
    foreign: Taken
