"""Folders with what nodes show of their devices: one for all nodes of a network that have the same.

A node has them under its own layers (:mod:`rehearsal.vms.boot`), so that 300 nodes cost no more files than
one, and a change of one node's devices is that node's alone.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from rehearsal.hardware.devices import NodeDevices
from rehearsal.hardware.memory import MEMINFO, meminfo_text
from rehearsal.hardware.sysfs import device_files, device_links

__all__ = ["SYSTEM", "TOPOLOGY", "make_device_tree", "topology_text"]

SYSTEM = "sys"
"""Folder of a tree for ``/sys``."""
TOPOLOGY = "microsoft"
"""Folder for ``/opt/microsoft``."""
_OWN = ("bus/pci/devices", "class/infiniband", "class/nvme")
"""Folders of ``/sys`` in which nothing of this machine's is seen."""


def make_device_tree(network: Path, devices: NodeDevices) -> str:
    """Make the tree of nodes with these devices, unless it is there; return its name below ``network``, empty
    for a VM without any."""
    if devices == NodeDevices():
        return ""
    name = f"devices/{hashlib.sha256(repr(devices).encode()).hexdigest()[:12]}"
    if (network / name).exists():
        return name
    building = network / f"{name}.new"
    system = building / SYSTEM
    for folder in _OWN:
        (system / folder).mkdir(parents=True)
    _write_all(system, device_files(devices))
    for path, target in device_links(devices).items():
        (system / path).symlink_to(target)
    for folder in _OWN:
        _hide_own(Path("/sys", folder), system / folder)
    if devices.memory_gib is not None:
        _write(building / MEMINFO, meminfo_text(Path("/proc/meminfo").read_text(), devices.memory_gib << 20))
    if devices.topology:
        _write(building / TOPOLOGY / devices.topology, topology_text(devices))
    building.rename(network / name)
    return name


def _write_all(folder: Path, files: dict[str, str]) -> None:
    """Write files; equal ones are links to one: to make a file is what costs, and a table of keys has 128."""
    written: dict[str, Path] = {}
    for parent in {(folder / path).parent for path in files}:
        parent.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        if text in written:
            (folder / path).hardlink_to(written[text])
        else:
            written[text] = folder / path
            written[text].write_text(text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _hide_own(machine: Path, folder: Path) -> None:
    for entry in machine.iterdir() if machine.is_dir() else ():
        if not (folder / entry.name).exists():  # device 0/0 is the overlay's mark for a removed file
            os.mknod(folder / entry.name, stat.S_IFCHR)


def topology_text(devices: NodeDevices) -> str:
    """Return NCCL's topology file of the devices, without their places on the CPUs.

    Form: NVIDIA/nccl, src/graph/xml.cc, and azhpc-images, topology/.
    """
    found = [(gpu.address, "0x030200") for gpu in devices.gpus]
    found += [(device.address, "0x020700") for device in devices.rdma if device.link_layer == "InfiniBand"]
    lines = [
        f'    <pci busid="{address}" class="{kind}" link_speed="16 GT/s" link_width="16"/>\n'
        for address, kind in found
    ]
    return f'<system version="1">\n  <cpu numaid="0" arch="x86_64">\n{"".join(lines)}  </cpu>\n</system>\n'
