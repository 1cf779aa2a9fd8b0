"""Processors, memory and networks of this node, from the kernel's files.

Forms of the files: the kernel's Documentation/filesystems/proc.rst (stat, meminfo, net/dev) and
Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import os

from launch.remote.health.sysfs import DATA_WORD, listed, read_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.sample.sample_records import GpuSample, NodeSample

__all__ = ["NodeStats", "cpu_ticks", "infiniband_files", "memory_bytes", "network_bytes", "read_file"]

_IDLE, _IO_WAIT, _COUNTED = 3, 4, 8
"""Places in the line ``cpu`` of /proc/stat; guest time, from the ninth on, is part of user time."""
_LOOPBACK, _OVER_INFINIBAND = b"772", b"32"
"""Types of network devices (linux/if_arp.h, ARPHRD_*)."""
_LISTED_S = 30.0
"""Seconds for which the list of devices is kept."""
_FILE = 1 << 16


def read_file(path: str) -> bytes:
    """Return the beginning of a file of the kernel; b"" where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # open() takes four times as long
    except OSError:
        return b""
    try:
        return os.read(fd, _FILE)
    except OSError:
        return b""
    finally:
        os.close(fd)


def cpu_ticks(stat: bytes) -> tuple[int, int]:
    """Return the busy ticks of all processors and all of their ticks, from /proc/stat.

    >>> cpu_ticks(b"cpu  10 0 5 80 5 0 0 0 3 0\\ncpu0 10 0 5 80 5 0 0 0 3 0\\n")
    (15, 100)
    """
    words = stat.partition(b"\n")[0].split()[1:]
    if len(words) <= _IO_WAIT:
        return 0, 0
    ticks = [int(word) for word in words[:_COUNTED]]
    total = sum(ticks)
    return total - ticks[_IDLE] - ticks[_IO_WAIT], total


def memory_bytes(meminfo: bytes) -> tuple[int, int]:
    """Return the used and the total bytes of memory, from /proc/meminfo; what the kernel can free is unused.

    >>> memory_bytes(b"MemTotal: 1000 kB\\nMemFree: 100 kB\\nMemAvailable: 400 kB\\n")
    (614400, 1024000)
    """
    found = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(b":")
        if name in (b"MemTotal", b"MemAvailable"):
            found[name] = int(rest.split()[0]) * 1024
    total = found.get(b"MemTotal", 0)
    return total - found.get(b"MemAvailable", 0), total


def network_bytes(devices: bytes, left_out: set[str]) -> tuple[int, int]:
    """Return the bytes received and sent by all devices of /proc/net/dev but those ``left_out``.

    >>> network_bytes(b"head\\nhead\\n    lo: 9 0 0 0 0 0 0 0 9 0\\n  eth0: 5 0 0 0 0 0 0 0 7 0\\n", {"lo"})
    (5, 7)
    """
    received = sent = 0
    for line in devices.splitlines()[2:]:
        name, _, rest = line.partition(b":")
        words = rest.split()
        if len(words) > _COUNTED and name.strip().decode("ascii", "replace") not in left_out:
            received += int(words[0])
            sent += int(words[_COUNTED])
    return received, sent


def infiniband_files(folder: str) -> list[tuple[str, str]]:
    """Return the files with the data received and sent by each InfiniBand port: not those of accelerated
    networking, whose link layer is Ethernet."""
    found = []
    for device in listed(folder):
        for port in listed(f"{folder}/{device}/ports"):
            path = f"{folder}/{device}/ports/{port}"
            if read_file(path + "/link_layer").strip() == b"InfiniBand":
                found.append((path + "/counters/port_rcv_data", path + "/counters/port_xmit_data"))
    return found


class NodeStats:
    """Reader of a node's figures, below ``root``; rates are since the reading before."""

    def __init__(self, now: float, root: str = "") -> None:
        self._root = root
        self._listed = float("-inf")
        self._left_out: set[str] = set()
        self._infiniband: list[tuple[str, str]] = []
        self._time = now
        self._list_devices(now)
        self._ticks = cpu_ticks(read_file(root + "/proc/stat"))
        self._network = self._read_network()
        self._words = self._read_infiniband()

    def sample(self, now: float, gpus: list[GpuSample]) -> NodeSample:
        """Return the node's sample at ``now``, in seconds of a monotonic clock."""
        seconds = max(now - self._time, 1e-3)
        self._time = now
        self._list_devices(now)
        busy, total = cpu_ticks(read_file(self._root + "/proc/stat"))
        ticks = total - self._ticks[1]
        permille = 1000 * (busy - self._ticks[0]) // ticks if ticks > 0 else 0
        self._ticks = busy, total
        used, memory = memory_bytes(read_file(self._root + "/proc/meminfo"))
        network, words = self._read_network(), self._read_infiniband()
        net_rx, net_tx = _rates(self._network, network, seconds)
        ib_rx, ib_tx = -1, -1
        if self._infiniband:
            ib_rx, ib_tx = (rate * DATA_WORD for rate in _rates(self._words, words, seconds))
        self._network, self._words = network, words
        return {
            "cpu_permille": min(1000, max(0, permille)),
            "memory_used": max(0, used),
            "memory_total": memory,
            "net_rx": net_rx,
            "net_tx": net_tx,
            "ib_rx": ib_rx,
            "ib_tx": ib_tx,
            "gpus": gpus,
        }

    def _list_devices(self, now: float) -> None:
        if now - self._listed < _LISTED_S:
            return
        self._listed = now
        folder = self._root + "/sys/class/net"
        self._left_out = {"lo", *(name for name in listed(folder) if _is_left_out(f"{folder}/{name}"))}
        self._infiniband = infiniband_files(self._root + "/sys/class/infiniband")

    def _read_network(self) -> tuple[int, int]:
        return network_bytes(read_file(self._root + "/proc/self/net/dev"), self._left_out)

    def _read_infiniband(self) -> tuple[int, int]:
        received = [read_number(path) or 0 for path, _ in self._infiniband]
        return sum(received), sum(read_number(path) or 0 for _, path in self._infiniband)


def _is_left_out(device: str) -> bool:
    """Return whether another device counts this one's bytes too, or InfiniBand does, or they stay here.

    A virtual function of accelerated networking has a master, the synthetic device, which counts both
    (drivers/net/hyperv/netvsc_drv.c, netvsc_get_stats64); so have a container's devices, a bridge.
    """
    if os.path.exists(device + "/master") or os.path.exists(device + "/bridge"):
        return True
    return read_file(device + "/type").strip() in (_LOOPBACK, _OVER_INFINIBAND)


def _rates(before: tuple[int, int], after: tuple[int, int], seconds: float) -> tuple[int, int]:
    """Return what grew each second; a counter that fell was reset."""
    received, sent = (max(0, int((new - old) / seconds)) for old, new in zip(before, after))  # noqa: B905
    return received, sent
