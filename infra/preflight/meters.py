"""The parts of a cluster as a plan lists them, and the entries of the price list that bill them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "ADDRESS",
    "ENDPOINT",
    "NAT",
    "NFS_SHARE",
    "Billing",
    "Meter",
    "Part",
    "endpoint_parts",
    "os_disk",
    "premium_disk",
]

Billing = Literal["vm", "meter", "free", "unknown"]
"""By the VM's hour, by a meter, not at all (but perhaps by traffic), or unknown."""


@dataclass(frozen=True, slots=True)
class Meter:
    """An entry of the price list that bills something other than a VM."""

    service: str
    name: str
    product: str | None = None
    everywhere: bool = False
    """Listed under :data:`infra.preflight.prices.GLOBAL` instead of the region."""


# Names as the price list has them, from published answers of the API.
ADDRESS = Meter("Virtual Network", "Standard IPv4 Static Public IP", "IP Addresses")
NAT = Meter("NAT Gateway", "Standard Gateway", everywhere=True)
ENDPOINT = Meter(
    "Virtual Network", "Standard Private Endpoint", "Virtual Network Private Link", everywhere=True
)
NFS_SHARE = Meter("Storage", "Premium LRS Provisioned", "Premium Files")
"""Billed by GiB and month."""

_TIERS = {
    4: "P1",
    8: "P2",
    16: "P3",
    32: "P4",
    64: "P6",
    128: "P10",
    256: "P15",
    512: "P20",
    1024: "P30",
    2048: "P40",
    4096: "P50",
    8192: "P60",
    16384: "P70",
    32767: "P80",
}
"""Tiers of premium SSD disks by their largest size in GiB (learn.microsoft.com disks-types)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One line of a plan: one or several resources of a kind."""

    what: str
    name: str = ""
    """Azure's name of a single resource."""
    count: int = 1
    billing: Billing = "free"
    meter: Meter | None = None
    """With ``billing: meter``."""
    units: int = 1
    """Units of the meter for each resource, e.g. GiB of a share."""
    size: str | None = None
    """With ``billing: vm``."""
    spot: bool = False
    note: str = ""
    """Further costs, or why the price is unknown."""


def premium_disk(gib: int) -> Meter | None:
    """Return the meter of a premium SSD disk; ``None`` above Azure's largest size.

    >>> premium_disk(1000).name, premium_disk(1025).name, premium_disk(40000)
    ('P30 LRS Disk', 'P40 LRS Disk', None)
    """
    tier = next((tier for most, tier in _TIERS.items() if gib <= most), None)
    return None if tier is None else Meter("Storage", f"{tier} LRS Disk", "Premium SSD Managed Disks")


def os_disk(count: int, name: str = "", gib: int | None = None) -> Part:
    """Return the part for the OS disks of ``count`` VMs, or of the VM called ``name``.

    ``gib`` is the size of each; ``None``: the image's.
    """
    if gib is None:
        note = "premium disk; its size comes from the image"
        return Part(what="OS disk", name=name, count=count, billing="unknown", note=note)
    note = f"{gib} GiB each"
    return Part(what="OS disk", name=name, count=count, billing="meter", meter=premium_disk(gib), note=note)


def endpoint_parts(name: str, service: str) -> list[Part]:
    """Return the parts of a private endpoint for a storage service (``blob`` or ``file``)."""
    zone = f"privatelink.{service}.core.windows.net"
    return [
        Part(what="private endpoint", name=name, billing="meter", meter=ENDPOINT, note="and by traffic"),
        Part(what="private DNS zone", name=zone, billing="unknown", note="by zone and by queries"),
    ]
