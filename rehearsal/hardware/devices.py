"""The devices of a rehearsed VM, by its size's row in the catalogue; they carry no data and compute nothing.

Azure's HPC images name InfiniBand devices ``mlx5_ib0`` and on, and the Ethernet device that accelerated
networking adds ``mlx5_an0`` (azhpc-images, azure_persistent_rdma_naming). Where that service has not run they
have the kernel's names, also on some nodes of a scale set (Azure/azhpc-images#491).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from catalogue.size import Size
from catalogue.sizes import find

__all__ = ["Gpu", "LinkState", "NodeDevices", "RdmaDevice", "devices_of"]

LinkState = Literal["active", "init", "polling", "down"]

_DOMAINS = {
    "ndv4": (0x1, 0x2, 0x3, 0x4, 0xB, 0xC, 0xD, 0xE),
    "ndv5": (0x1, 0x2, 0x3, 0x8, 0x9, 0xA, 0xB, 0xC),
}
"""PCI domains of a size's GPUs, by its topology file (azhpc-images, topology/); others: 1 and on, as in
ndv2-topo.xml, and invented where a size has no such file."""
_FIRST_HCA, _ETHERNET = 0x101, 0x201
"""The first domain of InfiniBand devices, by the same files, and an invented one of the Ethernet device."""
_SWITCHES = {"A100": 0x1AF1, "H100": 0x22A3, "H200": 0x22A3}
"""NVSwitches by GPU (pciutils/pciids); that they fill the gap in the GPUs' domains is a guess: it has as many
places as an HGX board has switches, six and four."""
_GPUS = {
    ("V100", 16): 0x1DB4,
    ("V100", 32): 0x1DB5,
    ("A100", 40): 0x20B0,
    ("A100", 80): 0x20B2,
    ("A100", None): 0x20B5,
    ("H100", 80): 0x2330,
    ("H100", None): 0x2321,
    ("H200", 141): 0x2335,
    ("GB200", 192): 0x2941,
    ("GB300", 288): 0x31C2,
    ("MI300X", 192): 0x74B5,
}
"""PCI device ids by model and memory (pciutils/pciids); other models have 0, which is nobody's. V100 of 16 GB
and A100 and H100 without memory in the catalogue are those of PCIe."""
_HCAS = {56: 0x1004, 100: 0x1018, 200: 0x101C}
"""Virtual functions of ConnectX-3, -5 and -6 by Gb/s (pciutils/pciids; 0x1018 on HC44rs: open-mpi/ompi#6723,
0x101c on ND A100 v4: Azure/azhpc-diagnostics#59)."""
_LATER_HCA = 0x101E
"""The one id of later virtual functions (pciutils/pciids)."""
_ETHERNET_HCA, _LATER_ETHERNET_HCA = (0x1016, 40), (0x101A, 100)
"""Id and Gb/s of accelerated networking's device: virtual functions of ConnectX-4 Lx and -5 Ex. The rates are
those that run-health-checks.sh of Azure/azurehpc-health-checks expected by size, AN40 and AN100; a later size
than those there is taken for one of AN100, an earlier one for one of AN40."""
_HDR_GBPS = 200
_IDLE_MW, _LOAD_MW = 50_000, 250_000
_REMAPPING = 8.0
"""From this compute capability on, memory rows are remapped (NVIDIA, "GPU memory error management")."""
PARTITION, DEFAULT_KEY = 0x800B, 0x7FFF
"""A tenant's key as Azure's documentation shows it (setup-mpi.md), and the key that everybody has."""


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """One device with one port."""

    name: str
    address: str
    """On the PCI bus: domain, bus, device and function."""
    id: int
    link_layer: Literal["InfiniBand", "Ethernet"]
    gbps: int
    state: LinkState = "active"
    keys: tuple[int, ...] = (PARTITION, DEFAULT_KEY)
    """Partition keys at the beginning of the port's table."""
    counters: tuple[tuple[str, int], ...] = ()
    """Counters that are not 0."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as the PCI bus and its driver show it."""

    address: str
    vendor: Literal["nvidia", "amd"]
    id: int
    remaps_rows: bool
    on_bus: bool = True
    listed: bool = True
    """The driver counts it."""
    lost: bool = False
    double_bit_errors: int = 0
    remap_failed: bool = False
    clock_reasons: int = 0
    """``nvmlClocksEventReason*`` of nvml.h, or-ed."""
    persistent: bool = True
    celsius: int = 34
    recovery: int = 0
    """``nvmlDeviceGpuRecoveryAction_t`` of nvml.h."""
    memory: int = 0
    """Bytes; 0 where the catalogue does not know."""
    load: int = 0
    """Percent: of the time in which it computes, and of its memory that is used."""

    @property
    def memory_used(self) -> int:
        """Bytes, of which the driver itself takes none."""
        return self.memory * self.load // 100

    @property
    def milliwatts(self) -> int:
        """Power that it draws; both figures are invented."""
        return _IDLE_MW + _LOAD_MW * self.load // 100


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """Devices of one VM; the default is a VM whose size is not known."""

    rdma: tuple[RdmaDevice, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    switches: tuple[tuple[str, int], ...] = ()
    """Address and id of each NVSwitch; NVIDIA's fabric manager runs."""
    nvme: int = 0
    topology: str = ""
    """Name of the size's NCCL topology file; empty for none."""
    memory_gib: int | None = None
    """Memory that the VM reports; ``None``: what this machine has."""
    xids: tuple[tuple[int, str], ...] = ()
    """Errors in the kernel's log: Xid code, and PCI address."""
    driver_hangs: bool = False

    @property
    def has_driver(self) -> bool:
        """Whether NVIDIA's driver and its library are there."""
        return any(gpu.vendor == "nvidia" for gpu in self.gpus)


def devices_of(size: str, *, kernel_names: bool = False, without_infiniband: bool = False) -> NodeDevices:
    """Return the devices of a VM of that size, as an HPC image names them.

    >>> [(device.name, device.address) for device in devices_of("Standard_ND40rs_v2").rdma]
    [('mlx5_ib0', '0101:00:00.0'), ('mlx5_an0', '0201:00:00.0')]
    >>> [device.name for device in devices_of("Standard_HC44rs", kernel_names=True).rdma]
    ['mlx5_0']
    """
    row = find(size)
    if row is None:
        return NodeDevices()
    gpus = _gpus(row)
    disks = re.search(r"(\d+) NVMe", row.local_disk or "")
    return NodeDevices(
        rdma=_rdma(row, kernel_names=kernel_names, without_infiniband=without_infiniband),
        gpus=gpus,
        switches=_switches(row, [gpu.address for gpu in gpus]),
        nvme=int(disks[1]) if disks else int(bool(row.nvme)),
        topology=f"{row.topology}-topo.xml" if row.topology else "",
        memory_gib=row.seen_memory_gib or row.memory_gib,
    )


def _rdma(row: Size, *, kernel_names: bool, without_infiniband: bool) -> tuple[RdmaDevice, ...]:
    count = row.hcas if row.infiniband and not without_infiniband else 0
    gbps = row.hca_gbps or 0
    found = [
        RdmaDevice(
            f"mlx5_ib{number}", _address(_FIRST_HCA + number), _HCAS.get(gbps, _LATER_HCA), "InfiniBand", gbps
        )
        for number in range(count)
    ]
    if row.accelerated_networking:
        hca, rate = _ETHERNET_HCA if 0 < gbps <= _HDR_GBPS else _LATER_ETHERNET_HCA
        found.append(RdmaDevice("mlx5_an0", _address(_ETHERNET), hca, "Ethernet", rate, keys=(0xFFFF,)))
    if kernel_names:
        found = [replace(device, name=f"mlx5_{number}") for number, device in enumerate(found)]
    return tuple(found)


def _gpus(row: Size) -> tuple[Gpu, ...]:
    count = row.gpus or 0
    domains = _DOMAINS.get(row.topology or "", range(1, count + 1))
    vendor: Literal["nvidia", "amd"] = "amd" if row.gpu_driver == "rocm" else "nvidia"
    kind = _GPUS.get((row.gpu or "", row.gpu_memory_gib), 0)
    remaps = float(row.compute_capability or _REMAPPING) >= _REMAPPING
    memory = (row.gpu_memory_gib or 0) << 30
    return tuple(Gpu(_address(domain), vendor, kind, remaps, memory=memory) for domain in domains[:count])


def _switches(row: Size, gpus: list[str]) -> tuple[tuple[str, int], ...]:
    kind = _SWITCHES.get(row.gpu or "")
    if not row.fabric_manager or kind is None:
        return ()
    domains = [int(address[:4], 16) for address in gpus]
    return tuple((_address(domain), kind) for domain in range(1, max(domains)) if domain not in domains)


def _address(domain: int) -> str:
    return f"{domain:04x}:00:00.0"
