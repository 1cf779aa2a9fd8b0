"""Types of what the nodes of a hanging job report of their ranks, and of the verdict on it.

A node's report travels as JSON in pieces, see :data:`launch.remote.base.frames.STACKS`. All its numbers are
whole. Ranks do not import this module.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from launch.remote.reading import Count, ExitStatus, JobId, NodeName, Rank, RankKey, Seconds, UnixTime

__all__ = [
    "Collective",
    "DebugAnswer",
    "DebugFacts",
    "DebugOrder",
    "GpuState",
    "Look",
    "NodeFacts",
    "PortTraffic",
    "ProcessFacts",
    "RankFacts",
    "RasRank",
    "StackFrame",
    "Stacks",
    "ThreadStack",
    "Unsent",
    "Verdict",
    "VerdictKind",
]

VerdictKind = Literal[
    "stopped", "kernel", "missing-rank", "mismatched-collective", "dead-network", "slow", "unknown"
]


class StackFrame(TypedDict):
    """A frame of a Python stack."""

    function: str
    file: str
    line: int
    text: str
    """The line in the file; empty where it cannot be read, or the frame is in a library."""


class ThreadStack(TypedDict):
    """A thread of a Python process."""

    name: str
    frames: list[StackFrame]
    """The innermost first."""


class Look(TypedDict):
    """A later look at a process's main thread, for what has changed since."""

    frames: list[StackFrame]


class Unsent(TypedDict):
    """A TCP connection of a process whose data its peer does not acknowledge."""

    address: str
    port: int
    bytes: int
    retransmits: int


class ProcessFacts(TypedDict):
    """A process of a rank."""

    pid: int
    inner_pid: int
    """Its number in its own namespace of processes, as in a container: NCCL's RAS has that one."""
    name: str
    state: str
    """Of its main thread, as in /proc/PID/stat: R, S, D, T, t, Z."""
    kernel_function: str
    """What its main thread waits in (wchan); empty where it runs, or that cannot be read."""
    cpu_ms: int
    """Processor time of all its threads between the first look and the last."""
    ended_ms: int
    """Processor time, in their whole life, of its children that ended between the first look and the last."""
    io: int
    """Bytes that it read and wrote between the first look and the last, without those of sockets' calls."""
    switches: int
    """Voluntary context switches of its main thread between the first look and the last."""
    received: int
    """Bytes that its connections to other machines have received between the first look and the last."""
    threads: list[ThreadStack]
    """Of a Python process, the main thread first; none where no stack could be read."""
    later: list[Look]
    problem: str
    """Why there are no stacks; empty for a process that is not Python's."""
    unsent: list[Unsent]


class Collective(TypedDict):
    """The newest entry of a rank's flight recorder that has not completed, else its newest."""

    sequence: int
    name: str
    state: str
    group: str


class RankFacts(TypedDict):
    """A rank's processes, parents before their children."""

    rank: Rank
    processes: list[ProcessFacts]
    collective: list[Collective]
    """One at most; none without a flight recorder's file."""


class PortTraffic(TypedDict):
    """A port of a node's InfiniBand devices."""

    name: str
    state: str
    received: int
    """Bytes between the first look and the last."""
    sent: int


class GpuState(TypedDict):
    """A GPU, as NVML reports it."""

    index: int
    clock_events: int
    """NVML's mask of the reasons for which its clocks are below what they could be; -1 where unknown."""
    memory_use: int
    """Percentage of time in which its memory was read or written; -1 where unknown."""
    error: str
    """Why it does not answer."""


class RasRank(TypedDict):
    """A rank of an NCCL communicator, as NCCL's RAS reports it."""

    group: str
    rank: int
    host: str
    pid: int
    operations: int
    """Number of collectives that it has started; -1 for a rank that does not answer."""
    state: str


class NodeFacts(TypedDict):
    """What one runner's child found: of one node or, under mpirun, of one rank."""

    looked_ms: int
    """Between the first look and the last."""
    ranks: list[RankFacts]
    ports: list[PortTraffic]
    gpus: list[GpuState]
    ras: list[RasRank]
    problems: list[str]
    """What could not be read, and why."""


class DebugFacts(TypedDict):
    """What is known of all ranks of a job."""

    node_of: dict[RankKey, NodeName]
    """The node of each rank."""
    addresses: dict[str, NodeName]
    """The node of each private address."""
    ended: dict[RankKey, ExitStatus]
    """The exit status of each rank that has ended."""
    silent_s: dict[RankKey, Count]
    """Seconds since each rank's last output, or since the start of the ranks."""
    printed: list[Rank]
    """Ranks that printed while the facts were collected."""
    nodes: dict[NodeName, list[NodeFacts]]
    unanswered: dict[NodeName, str]
    """By node, why it has not reported, or not for all its ranks."""
    unheard_s: dict[NodeName, Count]
    """Seconds since anything has come from a node that has not reported, where a runner that lives would have
    sent something."""
    per_node: bool
    """Whether the job has one rank a node, the user's own launcher, whose processes are the ranks."""


class Verdict(TypedDict):
    """What keeps a job waiting."""

    kind: VerdictKind
    text: str
    ranks: list[Rank]
    """Ranks at fault, none where that is not known."""
    nodes: list[NodeName]
    """Their nodes."""
    notes: list[str]
    """What limits the verdict, and what else was noticed."""


class DebugOrder(TypedDict):
    """Frame DEBUG; the runner adds the pids of the ranks that have not ended."""

    request: int
    py_spy: str
    """Path of the program that reads Python's stacks; empty to look for one."""
    node: int
    """1 where the node's devices are to be reported too."""
    per_node: int
    """1 where a rank is the user's own launcher, whose processes are the job's ranks."""
    ranks: list[int]
    pids: list[int]
    until_ms: int
    """When the look has to end, by the node's monotonic clock; set by the runner."""
    containers: list[str]
    """Of each rank, what a daemon has started it in: ``docker:`` and the container's id; empty where its
    processes descend from its pid."""


class Stacks(TypedDict):
    """Frame STACKS: a piece of a report; an empty text where the runner has none."""

    request: int
    part: int
    of: int
    text: str


class DebugAnswer(TypedDict):
    """Answer of ``debug``, and the file ``debug.json`` of a job's folder."""

    request: str
    job: JobId
    state: str
    time: UnixTime
    seconds: Seconds
    """From the request to the answer."""
    facts: DebugFacts
    verdict: Verdict
