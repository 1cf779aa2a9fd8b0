"""What rehearsed VMs list as their RDMA devices."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from launch.remote.node.infiniband import rank_defaults
from rehearsal.vms.rdma_devices import rdma_devices, sysfs_folder
from tests.rehearsal.hardware import NETWORK, lab


@pytest.mark.parametrize(
    ("size", "names"),
    [
        ("Standard_ND40rs_v2", "mlx5_ib0 mlx5_an0"),
        ("Standard_ND96isr_H100_v5", " ".join([*(f"mlx5_ib{number}" for number in range(8)), "mlx5_an0"])),
        ("Standard_HC44rs", "mlx5_ib0"),
        ("Standard_NC24s_v3", ""),
        ("Standard_Unknown", ""),
    ],
)
def test_a_size_has_the_devices_of_its_row(size: str, names: str) -> None:
    assert " ".join(device.name for device in rdma_devices(size)) == names


def test_nodes_read_them_as_any_driver_shows_them(tmp_path: Path) -> None:
    folder = sysfs_folder(tmp_path, rdma_devices("Standard_ND40rs_v2", kernel_names=True))
    found = rank_defaults({}, str(tmp_path / folder / "infiniband"))
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1"


class Faults:
    """The second node's devices have other names, the third has no InfiniBand."""

    def hits_boot(self, kind: str, name: str) -> bool:
        return {"ib-names": "node000001", "no-ib": "node000002"}.get(kind) == name


def test_each_node_has_its_own_beside_the_kernels_classes_and_can_change_none(tmp_path: Path) -> None:
    look = "cd /sys/class/infiniband && grep -H . */ports/1/link_layer; ls /sys/class/net; touch x 2>&1"
    refused = "touch: cannot touch 'x': Read-only file system\n"

    async def story() -> None:
        async with lab(tmp_path, 0, faults=Faults()) as it:
            machines = [replace(it.machine(number), size="Standard_ND40rs_v2") for number in range(3)]
            await it.machines.boot(NETWORK, machines)
            for number in range(3):
                await it.machines.forward(
                    NETWORK, (it.address, 50000 + number), (machines[number].private_ip, 22)
                )
            seen = [(await it.ssh(number, look))[1] for number in range(3)]
            ethernet = "mlx5_{0}/ports/1/link_layer:Ethernet\n"
            infiniband = "mlx5_{0}/ports/1/link_layer:InfiniBand\n"
            assert seen == [
                ethernet.format("an0") + infiniband.format("ib0") + "eth0\nlo\n" + refused,
                infiniband.format(0) + ethernet.format(1) + "eth0\nlo\n" + refused,
                ethernet.format("an0") + "eth0\nlo\n" + refused,
            ]

    asyncio.run(story())
