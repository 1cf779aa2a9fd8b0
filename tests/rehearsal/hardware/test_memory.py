"""What a rehearsed node's processes use of its memory."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from pathlib import Path

import pytest

from rehearsal.hardware.memory import MemoryFiles, meminfo_text
from tests.rehearsal.hardware.test_shown_devices import boot, output
from tests.rehearsal.node_lab import Lab, lab

MIB = 1024
"""KiB."""
MACHINE = "MemTotal: 5 kB\nMemFree: 3 kB\nMemAvailable: 4 kB\nBuffers: 1 kB\n"


class Processes:
    """A folder like /proc, and the file of a node whose first process is number 1."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.file = folder / "proc", folder / "meminfo"
        self.file.write_text(meminfo_text(MACHINE, 100 * MIB))
        self.files = MemoryFiles(str(self.proc))
        self.run(1, "pid:[7]", 0, 0)
        self.files.add(1, self.file)

    def run(self, pid: int, namespace: str, resident: int, shared: int) -> None:
        """Let a process run, of so many pages."""
        folder = self.proc / str(pid)
        (folder / "ns").mkdir(parents=True, exist_ok=True)
        if not (folder / "ns/pid").is_symlink():
            (folder / "ns/pid").symlink_to(namespace)
        (folder / "statm").write_text(f"9999 {resident} {shared} 1 0 1 0\n")

    def used_kib(self) -> int:
        """What the file shows once all have been measured."""
        steps = sum(1 for _ in self.files.update())
        assert steps == len(list(self.proc.iterdir())) // 64
        found = {line.split()[0]: int(line.split()[1]) for line in self.file.read_text().splitlines()}
        assert found["MemTotal:"] == 100 * MIB
        assert found["MemFree:"] == found["MemAvailable:"]
        assert found["Buffers:"] == 1
        return found["MemTotal:"] - found["MemAvailable:"]


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


def test_a_nodes_processes_use_their_own_pages(processes: Processes) -> None:
    assert processes.used_kib() == 0
    processes.run(2, "pid:[7]", 600, 100)
    processes.run(3, "pid:[7]", 30, 40)
    processes.run(4, "pid:[8]", 7000, 0)
    assert processes.used_kib() == 2000
    processes.run(2, "pid:[7]", 100, 100)
    assert processes.used_kib() == 0


def test_many_processes_are_read_some_at_a_time(processes: Processes) -> None:
    for pid in range(2, 200):
        processes.run(pid, "pid:[7]", 11, 10)
    assert processes.used_kib() == 198 * 4


def test_more_than_all_of_it_is_all_of_it(processes: Processes) -> None:
    processes.run(2, "pid:[7]", 10**6, 0)
    assert processes.used_kib() == 100 * MIB


def test_a_node_that_is_gone_costs_nothing(processes: Processes, tmp_path: Path) -> None:
    processes.file.unlink()
    processes.run(2, "pid:[7]", 600, 0)
    assert list(processes.files.update()) == []
    for name in ("1", "2"):
        shutil.rmtree(processes.proc / name)
    list(processes.files.update())
    (tmp_path / "meminfo").write_text("kept")
    list(processes.files.update())
    assert (tmp_path / "meminfo").read_text() == "kept"


def test_a_node_shows_what_its_own_processes_use(tmp_path: Path) -> None:
    shown = "awk '{print $2}' /proc/meminfo | head -n 3"
    hold = "import time; held = bytearray(b'x') * (300 << 20); print(flush=True); time.sleep(60)"

    async def used(it: Lab, number: int) -> int:
        total, free, available = map(int, (await output(it, number, shown)).split())
        assert (total, free) == (661 << 20, available)
        return total - available

    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            await boot(it, *["Standard_ND40rs_v2"] * 2)
            assert "Read-only" in await output(it, 0, "sh -c 'echo x >/proc/meminfo' 2>&1 || :")
            await output(it, 1, f"nohup python3 -c {shlex.quote(hold)} >/dev/null 2>&1 & sleep 4")
            assert await used(it, 1) > 300 * MIB
            assert 0 < await used(it, 0) < 100 * MIB

    asyncio.run(story())
