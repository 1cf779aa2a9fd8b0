"""The files of a VM's devices, in the kernel's formats: golden, and what each state changes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from launch.errors import InputError
from rehearsal.hardware.device_tree import topology_text
from rehearsal.hardware.devices import LinkState, NodeDevices, devices_of
from rehearsal.hardware.sysfs import device_files, device_links, rate_text

GOLDEN = Path(__file__).with_name("golden")
ND40 = devices_of("Standard_ND40rs_v2")


def golden(name: str, text: str) -> None:
    """Compare with the file; WRITE_GOLDEN=1 writes it instead, for a reader to check in a diff."""
    path = GOLDEN / name
    if os.environ.get("WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_all_files_of_a_v100_node() -> None:
    files = device_files(ND40) | {path: f"-> {target}\n" for path, target in device_links(ND40).items()}
    shown = {path: text for path, text in files.items() if not ("/pkeys/" in path and text == "0x0000\n")}
    golden("nd40rs_v2.txt", "".join(f"{path}: {text}" for path, text in sorted(shown.items())))


def test_a_port_has_the_table_of_keys_that_mlx5_has() -> None:
    keys = [
        path for path in device_files(ND40) if path.startswith("class/infiniband/mlx5_ib0/ports/1/pkeys/")
    ]
    assert len(keys) == 128


def changed(devices: NodeDevices) -> dict[str, str | None]:
    before, after = device_files(ND40), device_files(devices)
    return {path: after.get(path) for path in before | after if before.get(path) != after.get(path)}


@pytest.mark.parametrize(
    ("state", "files"),
    [
        ("init", {"state": "2: INIT\n"}),
        ("polling", {"state": "1: DOWN\n", "phys_state": "2: Polling\n", "rate": "10 Gb/sec (4X SDR)\n"}),
        ("down", {"state": "1: DOWN\n", "phys_state": "3: Disabled\n", "rate": "10 Gb/sec (4X SDR)\n"}),
    ],
)
def test_a_link_that_is_not_up_changes_its_ports_files_alone(state: LinkState, files: dict[str, str]) -> None:
    first, *others = ND40.rdma
    found = changed(replace(ND40, rdma=(replace(first, state=state), *others)))
    assert found == {f"class/infiniband/mlx5_ib0/ports/1/{name}": text for name, text in files.items()}


def test_rate_keys_and_counters_are_files_of_the_port() -> None:
    first, *others = ND40.rdma
    grown = (("link_downed", 4), ("carrier_down_count", 6))
    sick = replace(first, gbps=50, keys=(0x7FFF,), counters=grown)
    port = "class/infiniband/mlx5_ib0/ports/1"
    assert changed(replace(ND40, rdma=(sick, *others))) == {
        f"{port}/rate": "50 Gb/sec (2X EDR)\n",
        f"{port}/pkeys/0": "0x7fff\n",
        f"{port}/pkeys/1": "0x0000\n",
        f"{port}/counters/link_downed": "4\n",
        "bus/pci/devices/0101:00:00.0/net/ib0/carrier_down_count": "6\n",
    }


def test_a_gpu_that_left_the_bus_takes_its_folder_with_it_and_one_that_its_driver_lost_does_not() -> None:
    first, *others = ND40.gpus
    gone = changed(replace(ND40, gpus=(replace(first, on_bus=False), *others)))
    assert {path for path, text in gone.items() if text is None} == {
        f"bus/pci/devices/0001:00:00.0/{name}" for name in ("vendor", "device", "class", "numa_node")
    }
    lost = changed(replace(ND40, gpus=(replace(first, lost=True), *others)))
    assert list(lost) == ["module/nvidia/nvml"]


def test_an_xid_is_a_line_of_the_kernels_log() -> None:
    (found,) = changed(replace(ND40, xids=((79, "0003:00:00.0"), (48, "0001:00:00.0")))).values()
    assert found is not None
    assert found.splitlines()[-2:] == [
        "4,3,1003,-;NVRM: Xid (PCI:0003:00:00): 79, GPU has fallen off the bus.",
        "4,4,1004,-;NVRM: Xid (PCI:0001:00:00): 48, pid='<unknown>', name=<unknown>",
    ]


def test_a_rate_that_no_link_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        InputError, match=r"--rate = 99: is not the rate of a link; use one of 5, 10, .*, 800 Gb/s"
    ):
        rate_text(99)


def test_nccls_topology_has_gpus_and_adapters() -> None:
    text = topology_text(ND40)
    assert text.count('class="0x030200"') == 8
    assert text.count('class="0x020700"') == 1
    assert "0201:00:00.0" not in text  # the Ethernet device
