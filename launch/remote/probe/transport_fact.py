"""What one line of a library's log says about the way between nodes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["INFINIBAND", "NVLINK", "ROCE", "TCP", "TORN", "Device", "Fact"]

INFINIBAND, ROCE, TCP = "InfiniBand", "RoCE", "TCP"
NVLINK = "NVLink"
"""Between the nodes of a rack of GB200 or GB300."""
TORN = "torn"
"""Of a connection whose line lacks its end."""


class Device(NamedTuple):
    """An RDMA device that a process has found."""

    number: str
    """As its library counts."""
    name: str
    """With its port: ``mlx5_ib0:1``."""
    transport: str


class Fact(NamedTuple):
    """A connection to another node, or the devices of one process."""

    library: str
    transport: str
    """:data:`INFINIBAND`, :data:`ROCE`, :data:`TCP`, :data:`NVLINK`, :data:`TORN`, or an unknown one by the
    library's name for it; empty where the line is not about a connection."""
    process: str = ""
    """Host and pid, where the line has them: numbers of devices are the process's own."""
    used: tuple[str, ...] = ()
    """Numbers or names of the connection's devices."""
    gpudirect: bool = False
    devices: tuple[Device, ...] = ()
    is_for_all: bool = False
    """It holds for every rank, though one rank alone prints it."""
    rank: int = -1
    """Number that the library gives the rank, -1 where the line has none."""
