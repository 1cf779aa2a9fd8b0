"""Files of the kernel, each a line or a number; what cannot be read is None."""

from __future__ import annotations

import os

__all__ = ["DATA_WORD", "has_nvidia_driver", "listed", "read_line", "read_number"]

DATA_WORD = 4
"""Bytes of a unit of a port's ``port_xmit_data`` and ``port_rcv_data``
(Documentation/ABI/stable/sysfs-class-infiniband)."""


def has_nvidia_driver(root: str = "") -> bool:
    """Return whether this node's kernel has NVIDIA's driver, which NVML asks."""
    return os.path.exists(root + "/sys/module/nvidia")


def listed(folder: str) -> list[str]:
    """Return the names in a folder, ``mlx5_ib10`` after ``mlx5_ib9``; none where it does not exist."""
    try:
        return sorted(os.listdir(folder), key=lambda name: (len(name), name))
    except OSError:
        return []


def read_line(path: str) -> str | None:
    """Return the content of a file of one line, without its end; None where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, 4096).decode("ascii", "replace").strip()
        finally:
            os.close(file)
    except OSError:
        return None


def read_number(path: str) -> int | None:
    """Return the number in a file, decimal or with ``0x``; None where there is none."""
    try:
        return int(read_line(path) or "", 0)
    except ValueError:
        return None
