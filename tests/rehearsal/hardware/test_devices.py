"""The devices that a rehearsed VM's size gives it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from catalogue.size import Size
from catalogue.sizes import catalogue
from launch.remote.node.infiniband import rank_defaults
from rehearsal.hardware.device_tree import make_device_tree
from rehearsal.hardware.devices import NodeDevices, devices_of
from rehearsal.hardware.sysfs import device_files


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
def test_a_size_has_the_rdma_devices_of_its_row(size: str, names: str) -> None:
    assert " ".join(device.name for device in devices_of(size).rdma) == names


@pytest.mark.parametrize(
    ("size", "hca", "gbps"),
    [
        ("Standard_ND96amsr_A100_v4", 0x1016, 40),
        ("Standard_HB120rs_v3", 0x1016, 40),
        ("Standard_ND96isr_H200_v5", 0x101A, 100),
        ("Standard_HB176rs_v4", 0x101A, 100),
    ],
)
def test_the_ethernet_device_is_of_the_age_of_the_infiniband_ones(size: str, hca: int, gbps: int) -> None:
    (found,) = (device for device in devices_of(size).rdma if device.link_layer == "Ethernet")
    assert (found.id, found.gbps) == (hca, gbps)


def test_ranks_find_them_by_whatever_name(tmp_path: Path) -> None:
    folder = make_device_tree(tmp_path, devices_of("Standard_ND40rs_v2", kernel_names=True))
    found = rank_defaults({}, str(tmp_path / folder / "sys/class/infiniband"))
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1"


@pytest.mark.parametrize(
    ("size", "gpu", "addresses", "switches"),
    [
        ("Standard_ND40rs_v2", 0x1DB5, "0001 0002 0003 0004 0005 0006 0007 0008", ""),
        (
            "Standard_ND96asr_v4",
            0x20B0,
            "0001 0002 0003 0004 000b 000c 000d 000e",
            "0005 0006 0007 0008 0009 000a",
        ),
        (
            "Standard_ND96isr_H200_v5",
            0x2335,
            "0001 0002 0003 0008 0009 000a 000b 000c",
            "0004 0005 0006 0007",
        ),
        ("Standard_NC48ads_A100_v4", 0x20B5, "0001 0002", ""),
        ("Standard_HB176rs_v4", 0, "", ""),
    ],
)
def test_gpus_are_where_azures_topology_files_have_them(
    size: str, gpu: int, addresses: str, switches: str
) -> None:
    devices = devices_of(size)
    assert " ".join(one.address.removesuffix(":00:00.0") for one in devices.gpus) == addresses
    assert {one.id for one in devices.gpus} <= {gpu}
    assert " ".join(address.removesuffix(":00:00.0") for address, _ in devices.switches) == switches


def test_memory_disks_and_driver_follow_from_the_row_too() -> None:
    found = devices_of("Standard_ND96isr_H100_v5")
    assert (found.memory_gib, found.nvme, found.topology, found.has_driver) == (
        1870,
        8,
        "ndv5-topo.xml",
        True,
    )
    assert [devices_of(f"Standard_{name}").has_driver for name in ("HC44rs", "ND96isr_MI300X_v5")] == [
        False,
        False,
    ]
    assert not any(gpu.remaps_rows for gpu in devices_of("Standard_ND40rs_v2").gpus)


@pytest.mark.parametrize("row", [row for row in catalogue() if not row.is_family], ids=lambda row: row.name)
def test_no_two_devices_of_a_size_have_one_address(row: Size) -> None:
    devices = devices_of(row.name)
    found = [gpu.address for gpu in devices.gpus] + [device.address for device in devices.rdma]
    found += [address for address, _ in devices.switches]
    assert [address for address, times in Counter(found).items() if times > 1] == []


def test_equal_files_of_a_tree_are_one_file_of_the_disk(tmp_path: Path) -> None:
    devices = devices_of("Standard_ND96asr_v4")
    system = tmp_path / make_device_tree(tmp_path, devices) / "sys"
    files = device_files(devices)
    assert {path: (system / path).read_text() for path in files} == files
    assert (
        len({(system / path).stat().st_ino for path in files}) == len(set(files.values())) < len(files) / 40
    )


def test_a_size_that_nobody_knows_shows_what_this_machine_has(tmp_path: Path) -> None:
    assert devices_of("Standard_Unknown") == NodeDevices()
    assert make_device_tree(tmp_path, NodeDevices()) == ""
    assert list(tmp_path.iterdir()) == []
