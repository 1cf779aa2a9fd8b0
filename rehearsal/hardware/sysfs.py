"""Files that the kernel has below ``/sys`` for a VM's devices, in its formats.

PCI: drivers/pci/pci-sysfs.c of Linux; classes of GPUs and InfiniBand devices: azhpc-images, topology/. Ports:
Documentation/ABI/stable/sysfs-class-infiniband, and drivers/infiniband/core/sysfs.c for states, rates, tables
of keys and names of counters. Counters of the hardware: drivers/infiniband/hw/mlx5/counters.c, of which some
are left out. ``hca_type`` is ``MT`` and the id in decimals (Azure/azhpc-diagnostics#59: MT4124).
"""

from __future__ import annotations

from launch.errors import InputError
from rehearsal.hardware.devices import LinkState, NodeDevices, RdmaDevice

__all__ = ["CARRIER", "COUNTERS", "KERNEL_LOG", "NVML_STATE", "device_files", "device_links", "rate_text"]

KERNEL_LOG = "module/printk/kmsg"
"""Where a node keeps what its ``/dev/kmsg`` shows; not a file of the kernel's own."""
NVML_STATE = "module/nvidia/nvml"
"""What ``nvml.c`` reads; not a file of the kernel's own, either."""

_PCI = "bus/pci/devices"
_NVIDIA, _AMD, _MELLANOX = 0x10DE, 0x1002, 0x15B3
_GPU_CLASSES = {"nvidia": (_NVIDIA, 0x030200), "amd": (_AMD, 0x120000)}
_BRIDGE, _INFINIBAND, _ETHERNET = 0x068000, 0x020700, 0x020000
_STATES: dict[LinkState, tuple[str, str]] = {
    "active": ("4: ACTIVE", "5: LinkUp"),
    "init": ("2: INIT", "5: LinkUp"),
    "polling": ("1: DOWN", "2: Polling"),
    "down": ("1: DOWN", "3: Disabled"),
}
_NO_LINK = 10
"""Gb/s of a port without a link: the kernel takes a speed that it does not know for SDR (sysfs.c)."""
_SPEEDS = (
    ("SDR", 2.5),
    ("DDR", 5),
    ("QDR", 10),
    ("FDR", 14),
    ("EDR", 25),
    ("HDR", 50),
    ("NDR", 100),
    ("XDR", 200),
)
"""Generations and the Gb/s of one of their lanes."""
_KEYS = 128
"""Length of mlx5's shortest table (MLX5_MIN_PKEY_TABLE_SIZE in include/linux/mlx5/device.h)."""
COUNTERS = (
    *("VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery"),
    *("local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets"),
    *("port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets"),
    *("port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors"),
    *("port_xmit_data", "port_xmit_discards", "port_xmit_packets", "port_xmit_wait", "symbol_error"),
    *("unicast_rcv_packets", "unicast_xmit_packets"),
)
CARRIER = "carrier_down_count"
"""How often the link of the device's network interface went down."""
_HARDWARE_COUNTERS = (
    *("duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err", "out_of_buffer"),
    *("out_of_sequence", "packet_seq_err", "req_cqe_error", "resp_cqe_error", "rnr_nak_retry_err"),
    *("roce_adp_retrans", "rx_atomic_requests", "rx_read_requests", "rx_write_requests"),
)


def device_files(devices: NodeDevices) -> dict[str, str]:
    """Return the files by their path below ``/sys``.

    >>> from rehearsal.hardware.devices import devices_of
    >>> files = device_files(devices_of("Standard_ND40rs_v2"))
    >>> files["bus/pci/devices/0008:00:00.0/device"], files["class/infiniband/mlx5_ib0/ports/1/rate"]
    ('0x1db5\\n', '100 Gb/sec (4X EDR)\\n')
    """
    files: dict[str, str] = {}
    for gpu in devices.gpus:
        if gpu.on_bus:
            vendor, kind = _GPU_CLASSES[gpu.vendor]
            files |= _pci(gpu.address, vendor, gpu.id, kind)
    for address, number in devices.switches:
        files |= _pci(address, _NVIDIA, number, _BRIDGE)
    for number, device in enumerate(devices.rdma):
        infiniband = device.link_layer == "InfiniBand"
        files |= _pci(device.address, _MELLANOX, device.id, _INFINIBAND if infiniband else _ETHERNET)
        if infiniband:
            path = f"{_PCI}/{device.address}/net/ib{number}/{CARRIER}"
            files[path] = f"{dict(device.counters).get(CARRIER, 0)}\n"
        files |= {f"class/infiniband/{device.name}/{name}": text for name, text in _device(device).items()}
    for number in range(devices.nvme):
        # as on NC80adis_H100_v5 (DeepSpeed's blog on DeepNVMe); padded to the 40 bytes of NVMe's Identify
        files[f"class/nvme/nvme{number}/model"] = "Microsoft NVMe Direct Disk v2           \n"
        files[f"class/nvme/nvme{number}/transport"] = "pcie\n"
    if devices.has_driver:
        modules = [
            "nvidia",
            *(["nvidia_peermem"] if any(one.link_layer == "InfiniBand" for one in devices.rdma) else []),
        ]
        files |= {f"module/{name}/initstate": "live\n" for name in modules}
        files[NVML_STATE] = _nvml_state(devices)
    if devices != NodeDevices():
        files[KERNEL_LOG] = _kernel_log(devices)
    return files


def device_links(devices: NodeDevices) -> dict[str, str]:
    """Return the symbolic links beside :func:`device_files`, with their targets."""
    return {
        f"class/infiniband/{device.name}/device": f"../../../{_PCI}/{device.address}"
        for device in devices.rdma
    }


def _pci(address: str, vendor: int, device: int, kind: int) -> dict[str, str]:
    values = {
        "vendor": f"{vendor:#06x}",
        "device": f"{device:#06x}",
        "class": f"{kind:#08x}",
        "numa_node": "-1",
    }
    return {f"{_PCI}/{address}/{name}": f"{value}\n" for name, value in values.items()}


def _device(device: RdmaDevice) -> dict[str, str]:
    state, physical = _STATES[device.state]
    linked = device.state in {"active", "init"}
    port = {
        "link_layer": device.link_layer,
        "state": state,
        "phys_state": physical,
        "rate": rate_text(device.gbps if linked else _NO_LINK),
    }
    keys = _KEYS if device.link_layer == "InfiniBand" else len(device.keys)
    port |= {f"pkeys/{place}": f"{key:#06x}" for place, key in enumerate([*device.keys, *[0] * _KEYS][:keys])}
    grown = dict(device.counters)
    port |= {f"counters/{name}": str(grown.get(name, 0)) for name in COUNTERS}
    port |= {f"hw_counters/{name}": "10" if name == "lifespan" else "0" for name in _HARDWARE_COUNTERS}
    return {
        "node_type": "1: CA\n",
        "hca_type": f"MT{device.id}\n",
        **{f"ports/1/{name}": f"{text}\n" for name, text in port.items()},
    }


def rate_text(gbps: int) -> str:
    """Return a port's rate as the kernel writes it: that of four lanes, or else of fewer.

    >>> rate_text(400), rate_text(50), rate_text(56)
    ('400 Gb/sec (4X NDR)', '50 Gb/sec (2X EDR)', '56 Gb/sec (4X FDR)')

    Raises :class:`~launch.errors.InputError` for a rate that no link has.
    """
    for lanes in (4, 2, 1):
        for name, speed in _SPEEDS:
            if lanes * speed == gbps:
                return f"{gbps} Gb/sec ({lanes}X {name})"
    known = sorted(
        {int(lanes * speed) for lanes in (4, 2, 1) for _, speed in _SPEEDS if lanes * speed % 1 == 0}
    )
    raise InputError(
        "--rate", gbps, "is not the rate of a link", f"use one of {', '.join(map(str, known))} Gb/s"
    )


def _nvml_state(devices: NodeDevices) -> str:
    """Return the state for ``nvml.c``: whether the driver hangs, then a line for each GPU that it counts."""
    lines = [f"hangs {int(devices.driver_hangs)}"]
    for gpu in devices.gpus:
        if gpu.listed and gpu.on_bus:
            numbers = (
                *(gpu.lost, gpu.double_bit_errors, gpu.remaps_rows, gpu.remap_failed, gpu.clock_reasons),
                *(gpu.persistent, gpu.celsius, gpu.recovery),
                *(gpu.load, gpu.memory, gpu.memory_used, gpu.milliwatts),
            )
            lines.append(f"{gpu.address} {gpu.id:04x} {' '.join(str(int(number)) for number in numbers)}")
    return "".join(f"{line}\n" for line in lines)


def _kernel_log(devices: NodeDevices) -> str:
    """Return the log in the form of ``/dev/kmsg`` (Documentation/ABI/testing/dev-kmsg).

    Lines of Xids: NVIDIA, "Xid Errors", and lines in leptonai/gpud; their texts are left out but for 79.
    Levels, times and the lines before them are invented.
    """
    messages = [(5, "Linux version 6.8.0-1044-azure"), (6, "Hypervisor detected: Microsoft Hyper-V")]
    if devices.has_driver:
        messages.append((5, "nvidia: module loaded"))
    for code, address in devices.xids:
        text = "GPU has fallen off the bus." if code == 79 else "pid='<unknown>', name=<unknown>"  # noqa: PLR2004
        messages.append((4, f"NVRM: Xid (PCI:{address[:-2]}): {code}, {text}"))
    return "".join(
        f"{level},{number},{1000 + number},-;{text}\n" for number, (level, text) in enumerate(messages)
    )
