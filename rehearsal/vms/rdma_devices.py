"""The RDMA devices of a rehearsed VM as its ``/sys/class/infiniband`` lists them; they carry no data.

Azure's HPC images name InfiniBand devices ``mlx5_ib0`` and on, and the Ethernet device that accelerated
networking adds ``mlx5_an0`` (azhpc-images, azure_persistent_rdma_naming). Where that service has not run they
have the kernel's names, also on some nodes of a scale set (Azure/azhpc-images#491).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from catalogue.sizes import find

__all__ = ["RdmaDevice", "rdma_devices", "sysfs_folder"]


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """One device with one port."""

    name: str
    link_layer: str


def rdma_devices(
    size: str, *, kernel_names: bool = False, without_infiniband: bool = False
) -> tuple[RdmaDevice, ...]:
    """Return the devices of a VM of that size, as an HPC image names them.

    >>> [device.name for device in rdma_devices("Standard_ND40rs_v2")]
    ['mlx5_ib0', 'mlx5_an0']
    >>> rdma_devices("Standard_HC44rs", kernel_names=True)
    (RdmaDevice(name='mlx5_0', link_layer='InfiniBand'),)
    """
    row = find(size)
    if row is None:
        return ()
    layers = ["InfiniBand"] * (row.hcas if row.infiniband and not without_infiniband else 0)
    names = [f"mlx5_ib{number}" for number in range(len(layers))]
    if row.accelerated_networking:
        layers.append("Ethernet")
        names.append("mlx5_an0")
    if kernel_names:
        names = [f"mlx5_{number}" for number in range(len(layers))]
    return tuple(map(RdmaDevice, names, layers))


def sysfs_folder(network: Path, devices: Sequence[RdmaDevice]) -> str:
    """Make the folder that lies over ``/sys/class`` of nodes with these devices; return it relative to
    ``network``, empty without devices."""
    if not devices:
        return ""
    name = f"sysfs/{hashlib.sha256(repr(devices).encode()).hexdigest()[:12]}"
    for device in devices:
        port = network / name / "infiniband" / device.name / "ports" / "1"
        port.mkdir(parents=True, exist_ok=True)
        (port / "link_layer").write_text(f"{device.link_layer}\n")
        (port / "state").write_text("4: ACTIVE\n")
    return name
