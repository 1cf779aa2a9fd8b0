"""The command ``sample-gpus``: what NVML says of each GPU, once a second until its reader is gone."""

from __future__ import annotations

import ctypes
import time
from typing import Iterator, cast  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base import frames, timing
from launch.remote.sample.sample_records import GpuSample

__all__ = ["gpu_samples", "main"]

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_UNKNOWN = -1


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def main() -> int:
    """Write a frame each second to stdout; end without GPUs, and with the reader."""
    for gpus in gpu_samples():
        frames.send_answer(frames.SAMPLE, frames.pack({"gpus": gpus}))
        time.sleep(timing.SAMPLE_S)
    return 0


def gpu_samples(library: str = _LIBRARY) -> Iterator[list[GpuSample]]:
    """Yield the figures of all GPUs that the driver counts, at each step; nothing without a driver."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() != _SUCCESS or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return
    devices = {}
    for index in range(count.value):
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) == _SUCCESS:
            devices[index] = device
    while True:
        yield [_read(nvml, index, device) for index, device in devices.items()]


def _read(nvml: ctypes.CDLL, index: int, device: ctypes.c_void_p) -> GpuSample:
    used, memory = _Utilization(), _Memory()
    power, events = ctypes.c_uint(), ctypes.c_ulonglong()
    knows_use = _call(nvml, "nvmlDeviceGetUtilizationRates", device, used)
    knows_memory = _call(nvml, "nvmlDeviceGetMemoryInfo", device, memory)
    knows_power = _call(nvml, "nvmlDeviceGetPowerUsage", device, power)
    knows_events = _call(nvml, "nvmlDeviceGetCurrentClocksEventReasons", device, events) or _call(
        nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", device, events
    )  # its name in drivers before 535
    return {
        "index": index,
        "utilisation": cast(int, used.gpu) if knows_use else _UNKNOWN,
        "memory_used": cast(int, memory.used) if knows_memory else _UNKNOWN,
        "memory_total": cast(int, memory.total) if knows_memory else _UNKNOWN,
        "power_mw": power.value if knows_power else _UNKNOWN,
        "clock_events": events.value if knows_events else _UNKNOWN,
    }


def _call(
    nvml: ctypes.CDLL,
    function: str,
    device: ctypes.c_void_p,
    result: ctypes.Structure | ctypes.c_uint | ctypes.c_ulonglong,
) -> bool:
    """Return whether the driver stored the result; older ones lack some functions."""
    try:
        called = getattr(nvml, function)
    except AttributeError:
        return False
    return bool(called(device, ctypes.byref(result)) == _SUCCESS)
