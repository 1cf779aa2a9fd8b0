"""Types of a node's health: what its VM size promises, and what was found. Ranks do not import it."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["Finding", "HealthCheck", "HealthMode", "Look", "Promise"]

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


class Look(TypedDict):
    """What a look at a node found."""

    findings: list[Finding]
    """Empty: the node is as promised."""
    gpus: int
    """Number of GPUs that their driver answers for; -1 where no driver was asked."""
    ports: list[str]
    """Active InfiniBand ports: ``mlx5_ib0:1``."""
