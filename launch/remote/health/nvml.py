"""What NVIDIA's driver says of each GPU, by its library NVML; names and values are those of ``nvml.h``."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import NoReturn

from launch.remote.base import timing
from launch.remote.health.nvml_library import LIBRARY, SUCCESS, Nvml, NvmlError

__all__ = ["Driver", "Gpu", "ask_driver", "read_driver"]

_LOADED = b"\n"

_UNCORRECTED, _VOLATILE = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED: double-bit errors; NVML_VOLATILE_ECC: since the driver was loaded."""
_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; drivers before 570 do not know it."""


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    )


class _FieldValue(ctypes.Structure):
    _fields_ = (
        ("fieldId", ctypes.c_uint),
        ("scopeId", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latencyUsec", ctypes.c_longlong),
        ("valueType", ctypes.c_int),
        ("nvmlReturn", ctypes.c_int),
        ("value", ctypes.c_uint * 2),
    )


@dataclass(frozen=True)
class Gpu:
    """A GPU that the driver counts; what it does not say is None."""

    index: int
    address: str = ""
    """As in ``0001:00:00.0``; empty where the driver does not say."""
    error: str = ""
    """Why it cannot be queried at all."""
    uncorrected: int | None = None
    """Double-bit errors of its memory since the driver was loaded."""
    remap_failed: bool | None = None
    remap_pending: bool | None = None
    recovery: int | None = None
    """What the driver asks for: 0 nothing, 1 a reset, 2 a reboot, 3 a drain of traffic between peers, 4 a
    drain and a reset."""
    clock_events: int | None = None
    """Reasons for slower clocks, one bit each."""
    memory_use: int | None = None
    """Percentage of time in which its memory was read or written."""
    persistence: bool | None = None
    temperature_c: int | None = None


@dataclass(frozen=True)
class Driver:
    """All GPUs that the driver counts; with a ``problem``, it could not be queried."""

    gpus: tuple[Gpu, ...] = ()
    problem: str = ""
    hangs: str = ""
    """That NVML, once loaded, did not answer in time; empty where it did."""
    unread: str = ""
    """Why nothing is known of the driver; empty where something is."""


def ask_driver(seconds: float = timing.NVML_S, library: str = "") -> Driver:
    """Return what the driver says of all GPUs to a process of its own, which may hang in it for ever."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _answer(writing, library)
    os.close(writing)
    data, chunk, until = b"", b"", time.monotonic() + seconds
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(reading, 1 << 16)
        data += chunk
        if not chunk:
            break
    else:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)  # it is not waited for: it may hang in the kernel
        late = f"no answer within {seconds:g} s"
        return (
            Driver(hangs=late)
            if data
            else Driver(unread=f"{library or LIBRARY}: not loaded in {seconds:g} s")
        )
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    try:
        found = json.loads(data)
    except ValueError:
        return Driver(
            unread=f"the process that queried NVML ended with status {status:#x}, without an answer"
        )
    return Driver(**{**found, "gpus": tuple(Gpu(**gpu) for gpu in found["gpus"])})


def _answer(pipe: int, library: str) -> NoReturn:
    """Write to the pipe that the library is loaded, then what the driver says, and end."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)  # whoever reads the output of the look does not wait for this process
        with suppress(OSError):
            ctypes.CDLL(library or LIBRARY)
        os.write(pipe, _LOADED)
        with open(pipe, "w", encoding="ascii") as stream:
            json.dump(asdict(read_driver(library)), stream)
    finally:
        os._exit(0)


def read_driver(library: str = "") -> Driver:
    """Return what the driver says of all GPUs."""
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        return Driver(problem=str(error))
    try:
        return Driver(tuple(_read_gpu(nvml, index) for index in range(nvml.count())))
    except NvmlError as error:
        return Driver(problem=str(error))
    finally:
        nvml.close()


def _read_gpu(nvml: Nvml, index: int) -> Gpu:
    try:
        queries = nvml.gpu(index)
    except NvmlError as error:
        return Gpu(index, error=str(error))
    info = _PciInfo()
    queries.call("nvmlDeviceGetPciInfo_v3", ctypes.byref(info))
    remaps = [ctypes.c_uint() for _ in range(4)]
    knows_remaps = queries.call("nvmlDeviceGetRemappedRows", *map(ctypes.byref, remaps))
    recovery = _FieldValue(fieldId=_RECOVERY_ACTION)
    knows_recovery = queries.call("nvmlDeviceGetFieldValues", ctypes.c_int(1), ctypes.byref(recovery))
    kinds = ctypes.c_int(_UNCORRECTED), ctypes.c_int(_VOLATILE)
    used = queries.utilization()
    persistence = queries.ask("nvmlDeviceGetPersistenceMode", ctypes.c_int())
    return Gpu(
        index,
        _sysfs_address(info.busId.decode("ascii", "replace")),
        uncorrected=queries.ask("nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong(), *kinds),
        remap_pending=bool(remaps[2].value) if knows_remaps else None,
        remap_failed=bool(remaps[3].value) if knows_remaps else None,
        recovery=recovery.value[0] if knows_recovery and recovery.nvmlReturn == SUCCESS else None,
        clock_events=queries.clock_events(),
        memory_use=used[1] if used else None,
        persistence=None if persistence is None else bool(persistence),
        temperature_c=queries.ask("nvmlDeviceGetTemperature", ctypes.c_uint(), ctypes.c_int(0)),
        error=queries.error,
    )


def _sysfs_address(bus_id: str) -> str:
    """Return NVML's bus id, whose domain has 8 digits, as sysfs writes it.

    >>> _sysfs_address("0000000A:00:00.0")
    '000a:00:00.0'
    """
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else ""
