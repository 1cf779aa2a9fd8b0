"""What a row of the catalogue holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import Literal

__all__ = ["CpuArch", "GpuDriver", "Size"]

CpuArch = Literal["x64", "Arm64"]
GpuDriver = Literal["nvidia-open", "nvidia-proprietary", "rocm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One VM size; ``None`` where no source gives the figure."""

    name: str
    """Azure's spelling."""
    image: Literal["ubuntu", "ubuntu-v100", "ubuntu-rocm"] | None = None
    """The rule of its default image (:mod:`images.os_images`); ``None``: the user has to name an image."""
    instead: str | None = None
    """The nearest size that does what this one does not."""
    note: str | None = None
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The source of each figure below, by its name."""

    vcpus: int | None = None
    memory_gib: int | None = None
    """What Azure sells."""
    seen_memory_gib: int | None = None
    """What Azure's node health check expects the operating system to report."""
    cpu_arch: CpuArch = "x64"
    gpu: str | None = None
    """Model; ``None`` for a size without GPUs, and for a family of several models."""
    gpus: int | None = None
    """GPUs, 0 for a size without."""
    gpu_memory_gib: int | None = None
    """Of each GPU."""
    compute_capability: str | None = None
    """Of NVIDIA's GPUs: what their code is built for, ``7.0`` being sm_70."""
    gpu_driver: GpuDriver | None = None
    """Kernel modules that drive the GPU."""
    fabric_manager: bool | None = None
    """NVSwitches join its GPUs, which NVIDIA's fabric manager sets up."""
    topology: str | None = None
    """Azure's NCCL topology file: ``ndv4`` is ``/opt/microsoft/ndv4-topo.xml``."""

    rdma: bool
    """Has InfiniBand adapters at all."""
    sriov: bool = False
    """Shows them to the VM as InfiniBand devices, which MPI, NCCL and UCX need."""
    hcas: int = 0
    hca_gbps: int | None = None
    """Of each adapter, in Gb/s."""
    gpudirect: bool | None = None
    """NCCL sends from the GPUs' memory by them."""
    link: Literal["FDR", "EDR", "HDR", "NDR"] | None = None
    connectx3: bool | None = None
    """The adapter is a ConnectX-3 Pro, which OFED dropped with 5.1."""
    allreduce_gbs: int | None = None
    """GB/s of bus bandwidth that NCCL's all_reduce of 16 GB reaches over InfiniBand between several nodes."""
    allreduce_warn_gbs: int | None = None
    """What less than is suspect."""
    allreduce_report_gbs: int | None = None
    """What less than is worth a report to Azure."""
    accelerated_networking: bool | None = None
    settings: str | None = None
    """The ``[settings]`` of the catalogue that its ranks get; ``None``: the default ones."""

    hyperv: Literal["Gen2"] | None = None
    """``Gen2`` where the size takes no other image."""
    local_disk: str | None = None
    """Disks of the host that can hold the operating system, in words."""
    nvme: bool | None = None
    """Has local NVMe disks that come empty and unformatted."""

    family: str | None = None
    """Quota family as the Resource SKUs API spells it."""
    quota: str | None = None
    """Name of the family's quota where the usages API spells it otherwise."""
    regions: tuple[str, ...] | None = None
    """Regions of the United States that offer the size; the source lists no others."""
    retired: bool = False
    """Gone, whatever ``retirement`` says: the day it went is not always known."""
    retirement: date | None = None
    """The day on which Azure deallocates its VMs."""

    @property
    def is_family(self) -> bool:
        """Whether the row stands for a whole family of sizes."""
        return "*" in self.name

    @property
    def slots(self) -> int | None:
        """Processes a node can take: its GPUs, or its vCPUs when it has none; ``None`` when unknown."""
        return self.gpus if self.gpus != 0 else self.vcpus

    @property
    def infiniband(self) -> bool:
        """Whether it shows InfiniBand adapters that today's OFED drives."""
        return self.sriov and not self.connectx3

    @property
    def drivers_known(self) -> bool:
        """Whether enough is known to make an image for it from plain Ubuntu."""
        return not self.is_family and (self.gpu_driver is not None or (self.gpus == 0 and not self.retired))

    def gone(self, today: date) -> bool:
        """Return whether Azure no longer creates the size on that day.

        >>> size = Size(name="Standard_HC44rs", rdma=True, retirement=date(2027, 5, 31))
        >>> size.gone(date(2027, 5, 30)), size.gone(date(2027, 5, 31))
        (False, True)
        """
        return self.retired or (self.retirement is not None and self.retirement <= today)
