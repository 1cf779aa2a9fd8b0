"""Processors, memory and networks of a node, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.remote.sample.node_stats import NodeStats

IB = "sys/class/infiniband"


class Kernel:
    """Files of the kernel below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\n")
        self.write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 600 kB\n")
        self.network(0, 0)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def network(self, received: int, sent: int) -> None:
        """The same bytes on every device there is."""
        names = ("lo", "eth0", "enP1s1", "ib0", "docker0")
        rows = [f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name in names]
        self.write("proc/self/net/dev", "\n".join(["Inter-|", " face |", *rows, ""]))

    def port(self, device: str, layer: str, received: int, sent: int) -> None:
        folder = f"{IB}/{device}/ports/1"
        self.write(f"{folder}/link_layer", f"{layer}\n")
        self.write(f"{folder}/counters/port_rcv_data", f"{received}\n")
        self.write(f"{folder}/counters/port_xmit_data", f"{sent}\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path)
    made.write("sys/class/net/lo/type", "772\n")
    made.write("sys/class/net/eth0/type", "1\n")
    made.write("sys/class/net/enP1s1/type", "1\n")
    (tmp_path / "sys/class/net/enP1s1/master").symlink_to("../eth0")
    made.write("sys/class/net/ib0/type", "32\n")
    made.write("sys/class/net/docker0/type", "1\n")
    (tmp_path / "sys/class/net/docker0/bridge").mkdir()
    return made


def test_a_sample_is_of_the_time_since_the_one_before(kernel: Kernel) -> None:
    stats = NodeStats(10.0, str(kernel.root))
    kernel.write("proc/stat", "cpu  150 0 150 790 110 0 0 0 9 9\n")
    kernel.network(3000, 500)
    sample = stats.sample(12.0, [])
    assert sample == {
        "cpu_permille": 500,
        "memory_used": 400 * 1024,
        "memory_total": 1000 * 1024,
        "net_rx": 1500,
        "net_tx": 250,
        "ib_rx": -1,
        "ib_tx": -1,
        "gpus": [],
    }
    assert stats.sample(13.0, [])["net_rx"] == 0


def test_bytes_of_all_infiniband_ports_are_added_and_those_of_ethernet_are_not(kernel: Kernel) -> None:
    for device, layer in (("mlx5_ib0", "InfiniBand"), ("mlx5_ib1", "InfiniBand"), ("mlx5_an0", "Ethernet")):
        kernel.port(device, layer, 1000, 0)
    stats = NodeStats(0.0, str(kernel.root))
    for device, layer in (("mlx5_ib0", "InfiniBand"), ("mlx5_ib1", "InfiniBand"), ("mlx5_an0", "Ethernet")):
        kernel.port(device, layer, 2000, 250)
    sample = stats.sample(1.0, [])
    assert (sample["ib_rx"], sample["ib_tx"]) == (2 * 1000 * 4, 2 * 250 * 4)


def test_a_counter_that_was_reset_is_no_traffic(kernel: Kernel) -> None:
    kernel.network(9000, 9000)
    stats = NodeStats(0.0, str(kernel.root))
    kernel.network(10, 10)
    assert stats.sample(1.0, [])["net_rx"] == 0


def test_a_node_without_any_of_these_files_has_zeros(tmp_path: Path) -> None:
    sample = NodeStats(0.0, str(tmp_path)).sample(1.0, [])
    assert (sample["cpu_permille"], sample["memory_total"], sample["ib_tx"]) == (0, 0, -1)


def test_this_machines_own_files_can_be_read() -> None:
    sample = NodeStats(0.0).sample(1.0, [])
    assert 0 < sample["memory_used"] < sample["memory_total"]
