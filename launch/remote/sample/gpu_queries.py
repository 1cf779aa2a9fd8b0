"""The command ``sample-gpus``: what NVML says of each GPU, once an interval, until its reader ends."""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from typing import Iterator, cast  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base import frames, timing
from launch.remote.health.nvml_library import GpuQueries, Nvml, NvmlError
from launch.remote.sample.sample_records import GpuSample

__all__ = ["gpu_samples", "main"]

_UNKNOWN = -1


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def main() -> int:
    """Write a frame for each sample to stdout; end without GPUs, and with the reader."""
    for gpus in gpu_samples():
        frames.send_answer(frames.SAMPLE, frames.pack({"gpus": gpus}))
        time.sleep(timing.SAMPLE_S)
    return 0


def gpu_samples(library: str = "") -> Iterator[list[GpuSample]]:
    """Yield the figures of all GPUs that the driver counts, at each step; nothing without a driver."""
    gpus = {}
    try:
        nvml = Nvml(library)
        count = nvml.count()
    except NvmlError:
        return
    for index in range(count):
        with suppress(NvmlError):
            gpus[index] = nvml.gpu(index)
    while True:
        yield [_read(index, gpu) for index, gpu in gpus.items()]


def _read(index: int, gpu: GpuQueries) -> GpuSample:
    used, memory = gpu.utilization(), _Memory()
    knows_memory = gpu.call("nvmlDeviceGetMemoryInfo", ctypes.byref(memory))
    power, events = gpu.ask("nvmlDeviceGetPowerUsage", ctypes.c_uint()), gpu.clock_events()
    return {
        "index": index,
        "utilisation": used[0] if used else _UNKNOWN,
        "memory_used": cast(int, memory.used) if knows_memory else _UNKNOWN,
        "memory_total": cast(int, memory.total) if knows_memory else _UNKNOWN,
        "power_mw": _UNKNOWN if power is None else power,
        "clock_events": _UNKNOWN if events is None else events,
    }
