"""Processor time and memory of ranks, from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.remote.sample.process_stats import ProcessStats

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Proc:
    """A /proc with the processes that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uptime(1000.0)

    def uptime(self, seconds: float) -> None:
        (self.folder / "uptime").write_text(f"{seconds} 0\n")

    def put(
        self, pid: int, parent: int, session: int, *, ticks: int = 0, children: int = 0, pages: int = 10
    ) -> None:
        fields = ["S", parent, session, session, 0, -1, 0, 0, 0, 0, 0, ticks, 0, children, 0, 20, 0, 1, 0]
        (self.folder / str(pid)).mkdir(exist_ok=True)
        line = " ".join(map(str, [*fields, 5, 0, pages]))
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a (b) c) {line}\n")

    def end(self, pid: int) -> None:
        (self.folder / str(pid) / "stat").unlink()
        (self.folder / str(pid)).rmdir()


def test_a_rank_is_its_process_and_all_that_descend_from_it(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    for pid, parent, session in ((10, 1, 10), (20, 1, 20), (8, 10, 10), (9, 8, 99), (30, 1, 30)):
        proc.put(pid, parent, session)
    stats = ProcessStats({0: 10, 1: 20}, 0.0, str(tmp_path))
    proc.put(10, 1, 10, ticks=TICKS)
    proc.put(9, 8, 99, ticks=TICKS // 2, pages=5)
    proc.put(30, 1, 30, ticks=1000)
    assert stats.sample(1.0) == {0: (1500, 25 * PAGE), 1: (0, 10 * PAGE)}


def test_a_childs_time_is_not_counted_twice_once_its_parent_has_waited_for_it(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(10, 1, 10)
    proc.put(11, 10, 10, ticks=0)
    stats = ProcessStats({0: 10}, 0.0, str(tmp_path))
    proc.put(11, 10, 10, ticks=TICKS)
    assert stats.sample(1.0)[0][0] == 1000
    proc.end(11)
    proc.put(10, 1, 10, children=TICKS)
    assert stats.sample(2.0)[0][0] == 0


def test_an_orphan_stays_its_ranks_by_its_session(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(10, 1, 10)
    stats = ProcessStats({0: 10}, 0.0, str(tmp_path))
    proc.put(12, 1, 10, pages=7)
    assert stats.sample(1.0)[0][1] == 10 * PAGE, "the list of processes is not read each second"
    assert stats.sample(5.0)[0][1] == 17 * PAGE


def test_what_a_process_used_before_it_was_found_is_not_of_this_second(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(10, 1, 10)
    stats = ProcessStats({0: 10}, 0.0, str(tmp_path))
    proc.put(12, 10, 10, ticks=4 * TICKS)
    assert stats.sample(5.0)[0][0] == 0
    proc.put(12, 10, 10, ticks=5 * TICKS)
    assert stats.sample(6.0)[0][0] == 1000


def test_a_rank_that_has_ended_uses_nothing(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(10, 1, 10, ticks=500)
    stats = ProcessStats({0: 10}, 0.0, str(tmp_path))
    proc.end(10)
    assert stats.sample(1.0) == {0: (0, 0)}


@contextmanager
def busy() -> Iterator[int]:
    """A process with a child that keeps a processor busy."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)


def test_a_busy_child_of_a_real_process_is_counted() -> None:
    with busy() as pid:
        time.sleep(0.5)
        stats = ProcessStats({3: pid}, time.monotonic())
        end = time.monotonic() + 20
        permille, resident = 0, 0
        while permille == 0 and time.monotonic() < end:
            time.sleep(0.3)
            permille, resident = stats.sample(time.monotonic())[3]
    assert 0 < permille < 1300
    assert resident > 2**20
