"""NVIDIA's management library NVML, opened; names and values are those of ``nvml.h``."""

from __future__ import annotations

import ctypes

__all__ = ["LIBRARY", "SUCCESS", "GpuQueries", "Nvml", "NvmlError"]

LIBRARY = "libnvidia-ml.so.1"
SUCCESS = 0
_ERRORS = {
    4: "NO_PERMISSION",
    9: "DRIVER_NOT_LOADED",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    18: "LIB_RM_VERSION_MISMATCH",
    999: "UNKNOWN",
}
_UNKNOWN = (2, 3, 13)
"""Codes by which a driver or a GPU does not know what is queried: INVALID_ARGUMENT, NOT_SUPPORTED,
FUNCTION_NOT_FOUND. Any other is a GPU that does not answer."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class NvmlError(Exception):
    """The library could not be loaded, or refused a call."""


class Nvml:
    """The library, until :meth:`close`. Raise :class:`NvmlError` where it or its driver is not there."""

    def __init__(self, library: str = "") -> None:
        try:
            self._calls = ctypes.CDLL(library or LIBRARY)
        except OSError as error:
            raise NvmlError(str(error)) from None
        self._check("nvmlInit_v2: ", self._calls.nvmlInit_v2())

    def count(self) -> int:
        """Return the number of GPUs that the driver counts."""
        found = ctypes.c_uint()
        self._check("nvmlDeviceGetCount_v2: ", self._calls.nvmlDeviceGetCount_v2(ctypes.byref(found)))
        return found.value

    def gpu(self, index: int) -> GpuQueries:
        """Return a GPU by its place. Raise :class:`NvmlError` for one that does not answer."""
        device = ctypes.c_void_p()
        call = self._calls.nvmlDeviceGetHandleByIndex_v2
        self._check("", call(ctypes.c_uint(index), ctypes.byref(device)))
        return GpuQueries(self._calls, device)

    def close(self) -> None:
        """Give the driver back."""
        self._calls.nvmlShutdown()

    @staticmethod
    def _check(called: str, status: int) -> None:
        if status != SUCCESS:
            raise NvmlError(called + _name(status))


class GpuQueries:
    """Queries to the driver about one GPU; ``error`` says that the GPU stopped answering."""

    def __init__(self, calls: ctypes.CDLL, device: ctypes.c_void_p) -> None:
        self._calls, self._device = calls, device
        self.error = ""

    def call(self, function: str, *arguments: object) -> bool:
        """Return whether the function succeeded; older drivers lack some."""
        try:
            called = getattr(self._calls, function)
        except AttributeError:
            return False
        status = called(self._device, *arguments)
        if status != SUCCESS and status not in _UNKNOWN:
            self.error = self.error or f"{function}: {_name(status)}"
        return bool(status == SUCCESS)

    def ask(
        self, function: str, result: ctypes.c_int | ctypes.c_uint | ctypes.c_ulonglong, *arguments: object
    ) -> int | None:
        """Return the number that the function stores into its last argument; None where it fails."""
        return int(result.value) if self.call(function, *arguments, ctypes.byref(result)) else None

    def utilization(self) -> tuple[int, int] | None:
        """Return the percentages of time in which a kernel ran, and in which memory was read or written."""
        used = _Utilization()
        known = self.call("nvmlDeviceGetUtilizationRates", ctypes.byref(used))
        return (int(used.gpu), int(used.memory)) if known else None

    def clock_events(self) -> int | None:
        """Return the reasons for slower clocks, one bit each (``nvmlClocksEventReason*``)."""
        found = self.ask("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong())
        if found is None:  # its name in drivers before 535
            found = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
        return found


def _name(status: int) -> str:
    return f"NVML_ERROR_{_ERRORS[status]}" if status in _ERRORS else f"NVML error {status}"
