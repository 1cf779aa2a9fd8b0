"""The ports of a node's RDMA devices, as ``/sys/class/infiniband`` has them.

Files and their forms: the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from launch.remote.health.sysfs import listed, read_line, read_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Port", "read_ports"]

_CLASS = "/sys/class/infiniband"
COUNTERS = ("link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards")
CARRIER = "carrier_down_count"
"""Counter of the network interface of IP over InfiniBand, which not every node has."""


@dataclass(frozen=True)
class Port:
    """One port; texts are those of its files, empty where they cannot be read."""

    device: str
    number: int
    link_layer: str = ""
    state: str = ""
    """As in ``4: ACTIVE``."""
    phys_state: str = ""
    """As in ``5: LinkUp``."""
    rate: str = ""
    """As in ``400 Gb/sec (4X NDR)``."""
    pkeys: tuple[int, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Device and number, as NCCL and UCX write them: ``mlx5_ib0:1``."""
        return f"{self.device}:{self.number}"

    @property
    def is_active(self) -> bool:
        """Whether it has an InfiniBand link."""
        return self.link_layer == "InfiniBand" and self.state.startswith("4:")

    @property
    def gbps(self) -> float | None:
        """Rate in Gb/s; None where the file has none.

        >>> Port("mlx5_ib0", 1, rate="2.5 Gb/sec (1X SDR)").gbps, Port("mlx5_ib0", 1).gbps
        (2.5, None)
        """
        try:
            return float(self.rate.split(" ", 1)[0])
        except ValueError:
            return None


def read_ports(root: str = "") -> tuple[Port, ...]:
    """Return all ports, those of Ethernet too."""
    found = []
    for device in listed(root + _CLASS):
        carrier = _carrier(f"{root}{_CLASS}/{device}/device/net")
        for number in listed(f"{root}{_CLASS}/{device}/ports"):
            folder = f"{root}{_CLASS}/{device}/ports/{number}"
            texts = {
                name: read_line(f"{folder}/{name}") or ""
                for name in ("link_layer", "state", "phys_state", "rate")
            }
            pkeys = [read_number(f"{folder}/pkeys/{place}") for place in listed(folder + "/pkeys")]
            counters = {name: read_number(f"{folder}/counters/{name}") for name in COUNTERS}
            counters[CARRIER] = carrier
            found.append(
                Port(
                    device,
                    int(number),
                    **texts,
                    pkeys=tuple(key for key in pkeys if key is not None),
                    counters={name: count for name, count in counters.items() if count is not None},
                )
            )
    return tuple(found)


def _carrier(folder: str) -> int | None:
    """Return how often the device's interface of IP over InfiniBand (``ib0``, ``ibs1``) lost its link."""
    names = [name for name in listed(folder) if name.startswith("ib")]
    return read_number(f"{folder}/{names[0]}/{CARRIER}") if names else None
