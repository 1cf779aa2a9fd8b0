"""Facts of healthy nodes, for tests that break one of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from launch.promise import promise_of
from launch.remote.health.facts import Facts
from launch.remote.health.host import Host
from launch.remote.health.ib_ports import Port
from launch.remote.health.kernel_log import KernelLog
from launch.remote.health.nvml import Driver, Gpu
from launch.remote.health.pci import PciGpu

__all__ = ["healthy_node", "with_gpu", "with_host", "with_port"]


def healthy_node(size: str) -> Facts:
    """A node that is as the catalogue's row says."""
    promise = promise_of(size)
    vendor = promise.get("vendor", "nvidia")
    addresses = [f"{number + 1:04x}:00:00.0" for number in range(promise.get("gpus", 0))]
    return Facts(
        promise,
        tuple(PciGpu(address, vendor) for address in addresses),
        Driver(tuple(_gpu(index, address) for index, address in enumerate(addresses)))
        if vendor == "nvidia"
        else None,
        KernelLog() if vendor == "nvidia" else None,
        (
            *(
                _port(f"mlx5_ib{number}", promise.get("hca_gbps", 0))
                for number in range(promise.get("hcas", 0))
            ),
            Port("mlx5_an0", 1, "Ethernet", "4: ACTIVE", "5: LinkUp", "40 Gb/sec (4X QDR)"),
        ),
        host=Host(
            memory_kib=promise.get("memory_gib", 1) << 20,
            shm_bytes=1 << 30,
            has_peermem=True,
            has_topology=True,
            nvme_disks=8,
            has_fabric_manager=True,
            clock_is_synchronised=True,
        ),
    )


def with_gpu(facts: Facts, **changes: Any) -> Facts:
    """The same node, with another GPU 3."""
    assert facts.driver is not None
    gpus = [*facts.driver.gpus]
    gpus[3] = dataclasses.replace(gpus[3], **changes)
    return dataclasses.replace(facts, driver=Driver(tuple(gpus)))


def with_port(facts: Facts, **changes: Any) -> Facts:
    """The same node, with another first port."""
    port = dataclasses.replace(facts.ports[0], **changes)
    return dataclasses.replace(facts, ports=(port, *facts.ports[1:]))


def with_host(facts: Facts, **changes: Any) -> Facts:
    """The same node, with other facts beside its GPUs and ports."""
    return dataclasses.replace(facts, host=dataclasses.replace(facts.host, **changes))


def _gpu(index: int, address: str) -> Gpu:
    return Gpu(
        index,
        address,
        uncorrected=0,
        remap_failed=False,
        remap_pending=False,
        recovery=0,
        clock_events=0,
        persistence=True,
        temperature_c=41,
    )


def _port(device: str, gbps: int) -> Port:
    rate = f"{gbps} Gb/sec (4X)"
    counters = {"link_downed": 0, "link_error_recovery": 0, "port_rcv_errors": 0, "port_xmit_discards": 0}
    return Port(device, 1, "InfiniBand", "4: ACTIVE", "5: LinkUp", rate, (0x8001, 0x7FFF), counters)
