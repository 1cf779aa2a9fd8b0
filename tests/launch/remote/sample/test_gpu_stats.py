"""Figures of GPUs, by a library with NVML's functions, and the process that asks for them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from launch.remote.health.sysfs import has_nvidia_driver
from launch.remote.sample.gpu_queries import gpu_samples
from launch.remote.sample.gpu_stats import GpuFeed
from launch.remote.sample.sample_records import GpuSample
from tests.launch.remote.health.test_nvml import library

ROOT = Path(__file__).parents[4]
FRAME = "import sys, time; from launch.remote.base import frames"
GPU: GpuSample = {
    "index": 0,
    "utilisation": 97,
    "memory_used": 84825604096,
    "memory_total": 85899345920,
    "power_mw": 690123,
    "clock_events": 0x40,
}


def feed(code: str) -> GpuFeed:
    """A feed whose process runs this program, at the time 0."""
    return GpuFeed(
        "t-1", 0.0, [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    )


def ended(pid: int) -> None:
    """Waits for a process of the test, as its runner does."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_each_gpu_that_answers_has_its_figures(tmp_path: Path) -> None:
    gpus = gpu_samples(library(tmp_path))
    assert next(gpus) == next(gpus) == [GPU]


def test_what_a_driver_does_not_report_is_unknown(tmp_path: Path) -> None:
    assert next(gpu_samples(library(tmp_path, ecc=3))) == [{**GPU, "power_mw": -1}]


def test_without_a_driver_there_is_nothing(tmp_path: Path) -> None:
    assert list(gpu_samples(library(tmp_path, 9))) == []
    assert list(gpu_samples("libno-such-nvidia-ml.so.1")) == []


def test_figures_are_the_newest_and_are_unknown_once_they_are_old() -> None:
    send = "frames.send_answer(frames.SAMPLE, frames.pack({'gpus': [{'index': %d}]}))"
    one = feed(f"{FRAME}\n{send % 0}\n{send % 1}\ntime.sleep(60)")
    until(lambda: one.newest(1.0) == [{"index": 1}])
    assert one.newest(3.9) == [{"index": 1}]
    assert one.newest(4.1) == []
    one.close()
    ended(one.pid)


def test_a_process_that_hangs_holds_up_nobody_and_is_ended() -> None:
    one = feed("import time; time.sleep(60)")
    begun = time.monotonic()
    assert one.newest(1.0) == []
    assert time.monotonic() - begun < 1
    assert one.newest(61.0) == []
    assert os.WTERMSIG(os.waitpid(one.pid, 0)[1]) == signal.SIGKILL


def test_a_process_that_ends_or_prints_anything_is_no_gpu() -> None:
    for code in ("pass", "print('x' * 9)", "import os; os.write(1, b'M' + bytes([255] * 9)); input()"):
        one = feed(code)
        ended(one.pid)
        assert one.newest(1.0) == []
        assert one.newest(2.0) == []


def test_a_driver_is_seen_by_its_kernel_module(tmp_path: Path) -> None:
    assert not has_nvidia_driver(str(tmp_path))
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    assert has_nvidia_driver(str(tmp_path))
