"""What of a size decides the software of its nodes: GPU, adapters, local disks.

The figures are data, in ``hardware.json``, each row with its source.

>>> hardware("standard_nd40RS_v2")
Hardware(name='Standard_ND40rs_v2', gpu='V100', cpu_arch='x64', infiniband=True, connectx3=False, \
fabric_manager=False, topology='ndv2', nvme=False)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from launch.errors import InputError

__all__ = ["CpuArch", "Hardware", "all_hardware", "hardware", "has_nvme"]

CpuArch = Literal["x64", "Arm64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One size, as its drivers see it."""

    name: str
    """Azure's spelling."""
    gpu: str | None = None
    """Model; ``None`` for a size without GPUs."""
    cpu_arch: CpuArch = "x64"
    infiniband: bool = False
    """Shows InfiniBand adapters that today's OFED drives."""
    connectx3: bool = False
    """Shows a ConnectX-3 Pro, which OFED dropped with 5.1."""
    fabric_manager: bool = False
    """Its GPUs are joined by NVSwitches, which NVIDIA's fabric manager sets up."""
    topology: str | None = None
    """Azure's NCCL topology file for it."""
    nvme: bool = False
    """Has local NVMe disks that come empty and unformatted."""


def hardware(name: str, key: str = "vmSize") -> Hardware:
    """What is known of the size ``name``, in any case.

    Raises :class:`~launch.errors.InputError` naming ``key`` for a size of which nothing is known.
    """
    for one in all_hardware():
        if one.name.lower() == name.lower():
            return one
    known = ", ".join(one.name for one in all_hardware())
    raise InputError(key, name, "is no size whose drivers are known here", f"take one of {known}")


def has_nvme(name: str) -> bool:
    """Whether nodes of this size have local NVMe disks, as far as is known.

    >>> has_nvme("Standard_ND96isr_H100_v5"), has_nvme("Standard_ND40rs_v2"), has_nvme("Standard_A0")
    (True, False, False)
    """
    return any(one.nvme for one in all_hardware() if one.name.lower() == name.lower())


@cache
def all_hardware() -> tuple[Hardware, ...]:
    """Every row."""
    rows = json.loads(resources.files(__package__).joinpath("hardware.json").read_text("utf-8"))
    return tuple(Hardware(**{key: value for key, value in row.items() if key != "source"}) for row in rows)
