"""What is read of a node's PCI bus, ports, kernel log and host, from trees in the kernel's own forms."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from launch.remote.health import kernel_log
from launch.remote.health.host import read_host
from launch.remote.health.ib_ports import Port, read_ports
from launch.remote.health.kernel_log import KernelLog, Xid, find_xids, read_kernel_log
from launch.remote.health.pci import PciGpu, read_pci_gpus


def write(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(root)


class TestPciGpus:
    def test_nvidias_and_amds_gpus_are_found_and_nothing_else(self, tmp_path: Path) -> None:
        devices = {
            "0002:00:00.0": ("0x10de", "0x030200"),  # V100
            "0001:00:00.0": ("0x10de", "0x030200"),
            "0003:00:00.0": ("0x10de", "0x068000"),  # NVSwitch
            "0101:00:02.0": ("0x15b3", "0x020700"),  # ConnectX
            "000a:00:00.0": ("0x1002", "0x120000"),  # MI300X
        }
        root = write(
            tmp_path,
            {
                f"sys/bus/pci/devices/{address}/{name}": value + "\n"
                for address, values in devices.items()
                for name, value in zip(("vendor", "class"), values, strict=True)
            },
        )
        assert read_pci_gpus(root) == (
            PciGpu("0001:00:00.0", "nvidia"),
            PciGpu("0002:00:00.0", "nvidia"),
            PciGpu("000a:00:00.0", "amd"),
        )

    def test_a_node_without_a_pci_bus_has_none(self, tmp_path: Path) -> None:
        assert read_pci_gpus(str(tmp_path)) == ()


class TestPorts:
    PORT = "sys/class/infiniband/mlx5_ib0/ports/1"

    def test_a_ports_files_are_read(self, tmp_path: Path) -> None:
        root = write(
            tmp_path,
            {
                f"{self.PORT}/link_layer": "InfiniBand\n",
                f"{self.PORT}/state": "4: ACTIVE\n",
                f"{self.PORT}/phys_state": "5: LinkUp\n",
                f"{self.PORT}/rate": "400 Gb/sec (4X NDR)\n",
                f"{self.PORT}/pkeys/0": "0x8123\n",
                f"{self.PORT}/pkeys/1": "0x7fff\n",
                f"{self.PORT}/counters/link_downed": "1\n",
                f"{self.PORT}/counters/port_rcv_errors": "7\n",
                "sys/class/infiniband/mlx5_ib0/device/net/ib0/carrier_down_count": "2\n",
            },
        )
        (port,) = read_ports(root)
        assert port == Port(
            "mlx5_ib0",
            1,
            "InfiniBand",
            "4: ACTIVE",
            "5: LinkUp",
            "400 Gb/sec (4X NDR)",
            (0x8123, 0x7FFF),
            {"link_downed": 1, "port_rcv_errors": 7, "carrier_down_count": 2},
        )
        assert (port.name, port.gbps, port.is_active) == ("mlx5_ib0:1", 400.0, True)

    def test_what_is_missing_is_empty_and_not_zero(self, tmp_path: Path) -> None:
        root = write(tmp_path, {f"{self.PORT}/state": "1: DOWN\n"})
        assert read_ports(root) == (Port("mlx5_ib0", 1, state="1: DOWN"),)

    def test_an_ethernet_interfaces_carrier_is_not_infinibands(self, tmp_path: Path) -> None:
        path = "sys/class/infiniband/mlx5_an0/device/net/eth1/carrier_down_count"
        root = write(tmp_path, {path: "9\n", "sys/class/infiniband/mlx5_an0/ports/1/state": "4: ACTIVE\n"})
        assert read_ports(root)[0].counters == {}


class TestKernelLog:
    LOST = "NVRM: Xid (PCI:0001:00:00): 79, pid=1122, name=python3, GPU has fallen off the bus."

    def test_each_error_of_each_gpu_is_found_once(self, tmp_path: Path) -> None:
        log = tmp_path / "kmsg"
        log.write_text(
            "6,339,5140900,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n"
            f"4,1201,98211,-;{self.LOST}\n SUBSYSTEM=pci\n"
            f"4,1202,98300,-;{self.LOST}\n"
            "4,1203,98400,-;NVRM: Xid (PCI:0002:00:00): 48, pid='<unknown>', name=<unknown>, DBE\n"
        )
        assert read_kernel_log(str(log)).xids == (
            Xid(79, "0001:00:00", "pid=1122, name=python3, GPU has fallen off the bus."),
            Xid(48, "0002:00:00", "pid='<unknown>', name=<unknown>, DBE"),
        )

    def test_a_line_of_dmesg_is_read_too(self) -> None:
        assert find_xids(f"[   12.5] {self.LOST}")[0].code == 79

    def test_an_error_of_a_part_of_a_split_gpu_is_its_gpus(self) -> None:
        line = "NVRM: Xid (PCI:0018:01:00 GPU-I:05): 95, pid=7, Uncontained"
        assert find_xids(line) == (Xid(95, "0018:01:00", "pid=7, Uncontained"),)

    @pytest.mark.parametrize(
        "line",
        [
            "NVRM: Xid (PCI:0001:00:00): 79",
            "NVRM: Xid (PCI:0001:00:00): 79 pid=7",
            "NVRM: Xid (PCI:0001:00:00): 79: GPU has fallen off the bus.",
            "NVRM: Xid (0001:00:00): 79, GPU has fallen off the bus.",
        ],
    )
    def test_an_error_is_found_whatever_is_around_its_code(self, line: str) -> None:
        (found,) = find_xids(line)
        assert (found.code, found.address) == (79, "0001:00:00")

    @pytest.fixture
    def for_root_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The kernel refuses its log to the node's user; here, tests may run as root."""

        def refuse(_: str) -> str:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(kernel_log, "_read_records", refuse)

    @pytest.mark.usefixtures("for_root_alone")
    def test_a_log_of_root_alone_is_asked_of_dmesg(self) -> None:
        assert read_kernel_log("/dev/kmsg", ("/bin/echo", self.LOST)).xids[0].code == 79

    @pytest.mark.usefixtures("for_root_alone")
    def test_a_log_that_nobody_may_read_is_a_problem(self) -> None:
        script = "echo sudo: a password is required >&2; exit 1"
        refused = read_kernel_log("/dev/kmsg", ("/bin/sh", "-c", script))
        assert refused.problem.endswith(": sudo: a password is required")
        missing = read_kernel_log("/dev/kmsg", ("no-such-sudo",))
        assert missing.problem == "/dev/kmsg is for root alone, and no-such-sudo does not exist"

    def test_a_missing_log_is_a_problem(self, tmp_path: Path) -> None:
        log = tmp_path / "kmsg"
        assert read_kernel_log(str(log)) == KernelLog(problem=f"{log}: No such file or directory")


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (builder)"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Feb 23 03:13:26 UTC 2026"


class TestHost:
    def test_a_host_of_files(self, tmp_path: Path) -> None:
        root = write(
            tmp_path,
            {
                "proc/meminfo": "MemTotal:       693105664 kB\nMemFree:        1 kB\n",
                "proc/77/comm": "nv-fabricmanage\n",
                "sys/module/nvidia_peermem/refcnt": "0\n",
                "sys/class/nvme/nvme0/model": "Microsoft NVMe Direct Disk\n",
                "opt/microsoft/ndv4-topo.xml": "<system/>\n",
                "dev/shm/x": "",
            },
        )
        host = read_host("/opt/microsoft/ndv4-topo.xml", fabric_manager=True, root=root)
        assert host.memory_kib == 693105664
        assert (host.has_fabric_manager, host.has_peermem, host.has_topology) == (True, True, True)
        assert host.nvme_disks == 1
        assert host.shm_bytes > 0

    @pytest.mark.parametrize(
        ("driver", "kernel", "why"),
        [
            (OPEN, "5.15.0-1100-azure", ""),
            (OPEN, "6.8.0-1030-azure", ""),
            (OPEN, "5.12.0", ""),
            (OPEN, "5.4.0-1103-azure", "Linux 5.4.0-1103-azure"),
            (OPEN, None, "Linux of an unknown release"),
            (PROPRIETARY, "6.8.0", "the driver's kernel modules are not the open ones"),
            (None, "6.8.0", "the driver's kernel modules are not the open ones"),
        ],
    )
    def test_dma_buf_needs_the_open_modules_and_a_kernel(
        self, tmp_path: Path, driver: str | None, kernel: str | None, why: str
    ) -> None:
        files = {"proc/driver/nvidia/version": driver, "proc/sys/kernel/osrelease": kernel}
        root = write(tmp_path, {name: f"{text}\n" for name, text in files.items() if text is not None})
        assert read_host(root=root).without_dma_buf == why

    def test_a_bare_host(self, tmp_path: Path) -> None:
        host = read_host("/opt/microsoft/ndv4-topo.xml", fabric_manager=True, root=str(tmp_path))
        assert (host.memory_kib, host.shm_bytes, host.nvme_disks) == (None, 0, 0)
        assert (host.has_fabric_manager, host.has_peermem, host.has_topology) == (False, False, False)
