"""The GPUs on the PCI bus, whether or not a driver answers for them."""

from __future__ import annotations

from dataclasses import dataclass

from launch.remote.health.sysfs import listed, read_number

__all__ = ["PciGpu", "read_pci_gpus"]

_DEVICES = "/sys/bus/pci/devices"
_VENDORS = {0x10DE: "nvidia", 0x1002: "amd"}
_CLASSES = (0x0302, 0x0380, 0x1200)
"""3D controller, other display controller, processing accelerator (pci.ids, list of classes). NVSwitches are
bridges, of class 0x0680."""


@dataclass(frozen=True)
class PciGpu:
    """A GPU's address, as in ``0001:00:00.0``, and its vendor."""

    address: str
    vendor: str


def read_pci_gpus(root: str = "") -> tuple[PciGpu, ...]:
    """Return the GPUs in the order of their addresses."""
    found = []
    for address in listed(root + _DEVICES):
        vendor = _VENDORS.get(read_number(f"{root}{_DEVICES}/{address}/vendor") or 0)
        if vendor and (read_number(f"{root}{_DEVICES}/{address}/class") or 0) >> 8 in _CLASSES:
            found.append(PciGpu(address, vendor))
    return tuple(sorted(found, key=lambda gpu: gpu.address))
