"""All that a look reads on a node."""

from __future__ import annotations

from dataclasses import dataclass, field

from launch.remote.health.host import Host, read_host
from launch.remote.health.ib_ports import Port, read_ports
from launch.remote.health.kernel_log import KernelLog, read_kernel_log
from launch.remote.health.nvml import Driver, ask_driver
from launch.remote.health.pci import PciGpu, read_pci_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from launch.remote.base.health_records import Promise

__all__ = ["Facts", "read_facts"]


@dataclass(frozen=True)
class Facts:
    """What a node has, and what was promised of it."""

    promise: Promise
    pci_gpus: tuple[PciGpu, ...] = ()
    driver: Driver | None = None
    """None where no GPU of NVIDIA is there or promised."""
    kernel_log: KernelLog | None = None
    """None where no GPU of NVIDIA is there or promised: the log is read for the errors of its driver."""
    ports: tuple[Port, ...] = ()
    growth: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By port, how much its counters grew within :data:`launch.remote.health.readings.PERIOD_S`."""
    host: Host = field(default_factory=Host)


def read_facts(promise: Promise) -> Facts:
    """Return the facts of this node, except the counters' growth."""
    gpus = read_pci_gpus()
    is_nvidia = promise.get("vendor") == "nvidia" or any(gpu.vendor == "nvidia" for gpu in gpus)
    host = read_host(promise.get("topology", ""), fabric_manager=bool(promise.get("fabric_manager")))
    log, ports = read_kernel_log() if is_nvidia else None, read_ports()
    driver = ask_driver() if is_nvidia else None  # last: whatever else is late is not taken for the driver
    return Facts(promise, gpus, driver, log, ports, host=host)
