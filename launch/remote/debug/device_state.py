"""A node's InfiniBand ports and GPUs while its ranks hang: bytes that ports carry, clocks held down."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from launch.remote.health.ib_ports import read_ports
from launch.remote.health.sysfs import DATA_WORD, read_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.debug.debug_records import GpuState, PortTraffic

__all__ = ["PortCounters", "gpu_states", "print_gpus"]

_CLASS = "/sys/class/infiniband"
_MAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__main__.py")


class PortCounters:
    """The ports' counters of data at one time."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._ports = read_ports(root)
        self._before = [self._read(port.device, port.number) for port in self._ports]

    def _read(self, device: str, number: int) -> tuple[int, int]:
        folder = f"{self._root}{_CLASS}/{device}/ports/{number}/counters"
        received = read_number(f"{folder}/port_rcv_data") or 0
        return received, read_number(f"{folder}/port_xmit_data") or 0

    def traffic(self) -> list[PortTraffic]:
        """Return what the InfiniBand ports have carried since."""
        found: list[PortTraffic] = []
        for port, before in zip(self._ports, self._before):  # noqa: B905  equal lengths, and Python 3.8 has no strict
            if port.link_layer != "InfiniBand":
                continue
            received, sent = self._read(port.device, port.number)
            carried = max(0, received - before[0]) * DATA_WORD, max(0, sent - before[1]) * DATA_WORD
            state = port.state.partition(": ")[2] or port.state
            found.append({"name": port.name, "state": state, "received": carried[0], "sent": carried[1]})
        return found


def gpu_states(seconds: float) -> tuple[list[GpuState], str]:
    """Return the GPUs, and why they are not known: NVML is asked by a process of its own, for it can hang."""
    argv = [sys.executable or "python3", "-I", "-S", _MAIN, "rank-stacks", "gpus"]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # it may hang in the driver: it is not waited for
        return [], f"NVIDIA's driver did not answer within {seconds:.1f} s"
    try:
        found: list[GpuState] = json.loads(output)
    except ValueError:
        return [], "NVIDIA's driver could not be queried"
    return found, ""


def print_gpus() -> int:
    """Print the GPUs as JSON."""
    from launch.remote.health.nvml import read_driver

    found: list[GpuState] = []
    for gpu in read_driver().gpus:
        events = -1 if gpu.clock_events is None else gpu.clock_events
        use = -1 if gpu.memory_use is None else gpu.memory_use
        found.append({"index": gpu.index, "clock_events": events, "memory_use": use, "error": gpu.error})
    sys.stdout.write(json.dumps(found))
    return 0
