"""Types of the nodes' health: what their VM size promises, and what was found, of each and of the way between
them. Ranks do not import it."""

from __future__ import annotations

from typing import Dict, List, Literal, TypedDict  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.reading import NodeName, Rank, Seconds, UnixTime

__all__ = [
    "NOT_CHECKED",
    "Finding",
    "Findings",
    "HealthCheck",
    "HealthEvent",
    "HealthMode",
    "Look",
    "ProbeEvent",
    "ProbeLine",
    "ProbeMode",
    "ProbeOrder",
    "ProbeResult",
    "ProbeVerdict",
    "Promise",
    "ProvenNodes",
    "Timed",
]

HealthMode = Literal["off", "warn", "strict"]
"""What findings do to a job: nothing, for nobody looks; be shown; refuse the job where they are errors."""


class Promise(TypedDict, total=False):
    """What the catalogue promises of a node, by its VM size; what is missing is unknown."""

    size: str
    gpus: int
    """0 for a size without."""
    gpu: str
    """Model of its GPUs."""
    vendor: Literal["nvidia", "amd"]
    """Of its GPUs."""
    fabric_manager: int
    """1 if NVSwitches join its GPUs."""
    topology: str
    """Path of NCCL's topology file."""
    hcas: int
    """InfiniBand devices that the node shows; 0 for a size without."""
    hca_gbps: int
    """Of each, in Gb/s."""
    gpudirect: int
    """1 if NCCL sends from the GPUs' memory by these devices."""
    memory_gib: int
    """Memory that the operating system reports."""
    nvme: int
    """1 if it has local NVMe disks."""
    sources: dict[str, str]
    """Source of each figure, by its key."""


class HealthCheck(TypedDict):
    """How a job's nodes are looked at before its ranks start."""

    mode: HealthMode
    promise: Promise


NOT_CHECKED: HealthCheck = {"mode": "off", "promise": {}}


class Finding(TypedDict):
    """Something of a node that is not as it was promised, or that nothing is known of."""

    rule: str
    """Name in :data:`launch.remote.health.rules.RULES`."""
    level: Literal["error", "warning", "unknown"]
    subject: str
    """The device or file: ``mlx5_ib0``, ``GPU 3 (0008:00:00.0)``, ``/dev/shm``."""
    measured: str
    expected: str
    source: str
    """Of what is expected."""
    remedy: str


class Timed(TypedDict, total=False):
    """A line of a file of records."""

    time: UnixTime
    """By the head's clock; the record's writer adds it."""


class Findings(TypedDict):
    """Frame HEALTH: what a look at the runner's node found."""

    findings: List[Finding]  # noqa: UP006


class Look(TypedDict):
    """What a look at a node found."""

    findings: list[Finding]
    """Empty: the node is as promised."""
    gpus: int
    """Number of GPUs that their driver answers for; -1 where no driver was asked."""
    ports: list[str]
    """Active InfiniBand ports: ``mlx5_ib0:1``."""


class HealthEvent(Timed):
    """Findings at a node before the job's ranks start; ``node`` and ``findings`` are empty where nobody
    looked."""

    event: Literal["health"]
    mode: HealthMode
    node: NodeName | Literal[""]
    findings: list[Finding]


# -- the proof of transport ----------------------------------------------------------------------

ProbeMode = Literal["on", "auto", "ranks", "off"]
"""``auto``: when the head uses these nodes together for the first time. ``ranks``: no probe, for the user's
variables keep MPI off InfiniBand, as where MPI only starts NCCL; what NCCL prints is checked."""
ProbeVerdict = Literal["proven", "refused", "failed", "unfinished", "unproven", "omitted"]
"""``refused``: a connection is not as promised. ``failed``: the probe's program failed, or showed the
connections of some nodes alone. ``unfinished``: the program did not end in time. ``unproven``: there is no
program to probe with, or its libraries print nothing about connections. ``omitted``: nothing to prove."""


class ProbeOrder(TypedDict):
    """Whether the way between a job's nodes is proven before its ranks start."""

    mode: ProbeMode
    rehearsal: int
    """1 on rehearsed nodes, between which there is no InfiniBand."""


class ProbeLine(TypedDict):
    """A line that a rank has printed."""

    rank: Rank
    node: NodeName | Literal[""]
    line: str


class ProbeResult(TypedDict):
    """What is known of the way between a job's nodes."""

    source: Literal["probe", "ranks"]
    """A probe, or what the job's own ranks print."""
    verdict: ProbeVerdict
    transport: str
    """For people: ``InfiniBand, 8 HCAs a node, GPUDirect``; empty where nothing was seen."""
    reason: str
    """Why it is not proven."""
    seconds: Seconds
    """Duration of the probe."""
    lines: list[ProbeLine]
    """The evidence."""


class ProbeEvent(ProbeResult, Timed):
    """What is known of the way between the job's nodes."""

    event: Literal["probe"]


class ProvenNodes(TypedDict):
    """Nodes of one passed probe: an element of the head's probes.json."""

    subject: str
    """As :func:`launch.remote.probe.probe_plan.subject_of` returns it."""
    job: str
    transport: str
    nodes: List[str]  # noqa: UP006
    slots: List[int]  # noqa: UP006
    """Of each node, how many the job held."""
    networks: Dict[str, str]  # noqa: UP006
    """By node, the mark of its networks during the probe."""
    time: float
