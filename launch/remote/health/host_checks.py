"""Checks of what is neither GPU nor port: each returns what breaks its rule, with what was measured."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from launch.remote.health.facts import Facts

    Found = Iterator[tuple[str, str]]

__all__ = [
    "TOLERANCE_PERCENT",
    "little_memory",
    "little_shared_memory",
    "locked_memory",
    "no_nvme",
    "no_peermem",
    "no_topology",
    "unsynchronised",
]

TOLERANCE_PERCENT = 5
"""NHC's own, in its ``check_hw_physmem``."""
_SHARED_MEMORY = 1 << 30


def little_memory(facts: Facts) -> Found:
    """Less memory than the operating system of such a node reports."""
    seen = facts.host.memory_kib
    if seen is None:
        yield "/proc/meminfo", "not readable"
    elif seen < facts.promise["memory_gib"] * (1 << 20) * (100 - TOLERANCE_PERCENT) // 100:
        yield "memory", f"{seen / (1 << 20):.0f} GiB"


def little_shared_memory(facts: Facts) -> Found:
    """Less shared memory than NCCL asks for."""
    if facts.host.shm_bytes < _SHARED_MEMORY:
        yield "/dev/shm", f"{facts.host.shm_bytes >> 20} MiB"  # noqa: S108  it is only named


def locked_memory(facts: Facts) -> Found:
    """A limit of the memory that processes may lock, as InfiniBand's buffers are."""
    if facts.host.memlock is not None:
        yield "memlock", f"{facts.host.memlock >> 10} KiB"


def no_peermem(facts: Facts) -> Found:
    """Neither a module nor DMA-BUF, by which InfiniBand devices read GPU memory."""
    if not facts.host.has_peermem and facts.host.without_dma_buf:
        yield "nvidia_peermem", f"not loaded, and no DMA-BUF: {facts.host.without_dma_buf}"


def no_topology(facts: Facts) -> Found:
    """No topology file."""
    if not facts.host.has_topology:
        yield facts.promise["topology"], "no such file"


def unsynchronised(facts: Facts) -> Found:
    """A clock that nobody sets."""
    if facts.host.clock_is_synchronised is False:
        yield "clock", "not synchronised"


def no_nvme(facts: Facts) -> Found:
    """No local disk where the size has some."""
    if not facts.host.nvme_disks:
        yield "/sys/class/nvme", "no disk"
