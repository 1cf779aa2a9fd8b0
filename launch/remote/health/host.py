"""What jobs need of a node beside its GPUs and ports: memory, limits, modules, files, disks, clock."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from dataclasses import dataclass

from launch.remote.base.files import file_system_size
from launch.remote.health.sysfs import listed, read_line

__all__ = ["Host", "read_host"]

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  the kernel's mount point; only its size is queried
_PEERMEM = ("nvidia_peermem", "nv_peer_mem")
"""Modules that let InfiniBand devices read GPU memory; the second is the older name."""
_OPEN_MODULE = "Open Kernel Module"
"""In /proc/driver/nvidia/version, where the driver's modules are the open ones: they alone export GPU memory
as DMA-BUF (NVIDIA, GPU Operator, "GPUDirect RDMA and GPUDirect Storage")."""
_DMA_BUF_KERNEL = (5, 12)
"""First Linux whose InfiniBand registers a DMA-BUF."""
_FABRIC_MANAGER = "nv-fabricmanager"[:15]
"""A process's name in ``/proc/<pid>/comm`` has at most 15 bytes."""
_UNSYNCHRONISED = 0x40
"""STA_UNSYNC (adjtimex(2))."""
_TIMEX_STATUS, _TIMEX_WORDS = 5, 64
"""Place of ``status`` in struct timex, and more words than it has."""


@dataclass(frozen=True)
class Host:
    """Facts of a node; None where they cannot be read."""

    memory_kib: int | None = None
    """As the operating system reports it."""
    shm_bytes: int = 0
    """Size of /dev/shm; 0 without it."""
    memlock: int | None = None
    """Bytes that a process may lock; None for any number."""
    has_peermem: bool = False
    without_dma_buf: str = ""
    """Why InfiniBand devices cannot reach GPU memory by DMA-BUF; empty where they can."""
    has_topology: bool = False
    """Whether the topology file that was asked for exists."""
    nvme_disks: int = 0
    has_fabric_manager: bool = False
    clock_is_synchronised: bool | None = None


def read_host(topology: str = "", *, fabric_manager: bool = False, root: str = "") -> Host:
    """Return the facts; look for the ``fabric_manager`` among all processes only where it is wanted."""
    _, limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    modules = listed(root + "/sys/module")
    return Host(
        memory_kib=_memory(root),
        shm_bytes=file_system_size(root + _SHARED_MEMORY),
        memlock=None if limit == resource.RLIM_INFINITY else limit,
        has_peermem=any(name in modules for name in _PEERMEM),
        without_dma_buf=_without_dma_buf(root),
        has_topology=bool(topology) and os.path.exists(root + topology),
        nvme_disks=len(listed(root + "/sys/class/nvme")),
        has_fabric_manager=fabric_manager and _runs(_FABRIC_MANAGER, root + "/proc"),
        clock_is_synchronised=_is_synchronised(),
    )


def _without_dma_buf(root: str) -> str:
    if _OPEN_MODULE not in (read_line(root + "/proc/driver/nvidia/version") or ""):
        return "the driver's kernel modules are not the open ones"
    release = read_line(root + "/proc/sys/kernel/osrelease") or ""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _DMA_BUF_KERNEL:
        return f"Linux {release or 'of an unknown release'}"
    return ""


def _memory(root: str) -> int | None:
    for line in (read_line(root + "/proc/meminfo") or "").split("\n"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    return None


def _runs(name: str, folder: str) -> bool:
    return any(read_line(f"{folder}/{pid}/comm") == name for pid in listed(folder) if pid.isdigit())


def _is_synchronised() -> bool | None:
    """Return whether the kernel's clock is set by a time service, as ``timedatectl`` reports it."""
    timex = (ctypes.c_long * _TIMEX_WORDS)()
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return None
    return not timex[_TIMEX_STATUS] & _UNSYNCHRONISED
