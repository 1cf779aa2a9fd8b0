"""What a user asks for when launching: the job, and the nodes it may run on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from launch.errors import InputError

__all__ = ["MASTER_PORT", "JobNode", "JobSpec", "Kind"]

Kind = Literal["mpi", "pytorch"]

MASTER_PORT = 6105
"""Azure ML's port for process groups (guide G5)."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LAUNCHERS_OWN = re.compile(
    r"(WORLD_SIZE|RANK|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|MASTER_ADDR|MASTER_PORT|AZ_BATCH_.*|AZ_BATCHAI_.*"
    r"|OMPI_COMM_WORLD_.*|RANKLIFT_.*)"
)
_HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class JobNode:
    """One node a job runs on."""

    name: str
    private_ip: str
    slots: int
    """Processes it can take."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One launch, checked when made: every mistake raises :class:`~launch.errors.InputError`.

    >>> JobSpec(name="digits", kind="pytorch", command=("train.py",), processes_per_node=0)
    Traceback (most recent call last):
    ...
    launch.errors.InputError: processes_per_node = 0: must be at least 1; ask for one or more
    """

    name: str
    """For people; part of the job's id."""
    kind: Kind
    command: tuple[str, ...]
    """The user's program and its arguments. A first word ending in .py runs under ``python``, one
    ending in .sh under bash."""
    per_node: bool = False
    """The command is a launcher itself, run once on every node (guide G8). A single word is a shell line
    for ``bash -c``, exactly as it is, unless it is a script's name."""
    processes_per_node: int | None = 1
    """Ranks on each node; None for one per slot. Not used with ``per_node``."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Set for every rank, over everything else."""
    snapshot: str = ""
    """Id of the pushed code; its folder is the ranks' working directory. Empty: the home folder."""
    python: str = "python3"
    port: int = MASTER_PORT
    """MASTER_PORT wished for; the next free one when it is taken on the head."""
    timeout_s: float | None = None
    """Seconds the job may take from the moment its turn came."""
    grace_s: float = 3.0
    """Seconds between SIGTERM and SIGKILL when the job is ended."""

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise InputError("command", None, "is empty", "give the script to run, e.g. train.py --epochs 3")
        if self.kind not in ("mpi", "pytorch"):
            raise InputError("kind", self.kind, "is no kind of job", "use mpi or pytorch")
        if self.per_node and self.kind == "mpi":
            raise InputError(
                "per_node", True, "is for pytorch jobs", "for one MPI process a node use processes_per_node 1"
            )
        if self.processes_per_node is not None and self.processes_per_node < 1:
            raise InputError(
                "processes_per_node",
                self.processes_per_node,
                "must be at least 1",
                "ask for one or more",
            )
        if not 1 <= self.port <= _HIGHEST_PORT:
            raise InputError("port", self.port, "is no TCP port", f"use the default, {MASTER_PORT}")
        for key, seconds in (("timeout_s", self.timeout_s), ("grace_s", self.grace_s)):
            if seconds is not None and seconds <= 0:
                raise InputError(key, seconds, "must be above 0", "give it in seconds, or leave it out")
        for word in self.command:
            _refuse_nul("command", word)
        for name, value in self.env.items():
            self._check_variable(name, value)

    @staticmethod
    def _check_variable(name: str, value: str) -> None:
        if not _ENV_NAME.fullmatch(name):
            raise InputError("env", name, "is no name for a variable", "use letters, digits and _")
        if _LAUNCHERS_OWN.fullmatch(name):
            remedy = "use the port option" if name == "MASTER_PORT" else "leave it out"
            raise InputError(f"env {name}", value, "is set by the launcher for every rank", remedy)
        _refuse_nul(f"env {name}", value)


def _refuse_nul(key: str, value: str) -> None:
    if "\0" in value:
        raise InputError(key, value, "holds a NUL byte, which no process can be given", "remove it")
