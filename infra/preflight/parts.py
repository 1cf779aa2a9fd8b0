"""What a cluster consists of, and what each part of it is billed by.

The program makes these (:mod:`infra.cluster`); here they are listed from the configuration alone, for the
plan that comes before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from images.nfs_server import stripes
from infra.config import ClusterConfig
from infra.naming import cluster_name, data_group_name, network_name, subnet_name
from infra.preflight.prices import Meter

__all__ = [
    "ADDRESS",
    "ENDPOINT",
    "NAT",
    "NFS_SHARE",
    "NODE",
    "SERVER_SIZE",
    "Billing",
    "Machines",
    "Part",
    "machines_of",
    "parts",
    "premium_disk",
    "server_name",
]

Billing = Literal["vm", "meter", "free", "unknown"]
"""By the VM's hour, by a meter's, not at all (but perhaps by traffic), or nobody here knows."""

# Names of meters as the price list has them, read in answers of the API that others have published.
ADDRESS = Meter("Virtual Network", "Standard IPv4 Static Public IP", "IP Addresses")
NAT = Meter("NAT Gateway", "Standard Gateway", everywhere=True)
ENDPOINT = Meter(
    "Virtual Network", "Standard Private Endpoint", "Virtual Network Private Link", everywhere=True
)
NFS_SHARE = Meter("Storage", "Premium LRS Provisioned", "Premium Files")
"""By the GiB and month."""

SERVER_SIZE = "Standard_E8s_v5"
"""Of the NFS server, as :mod:`infra.cluster.nfs` makes it."""

NODE = "node"
"""What a :class:`Part` of the cluster's nodes is called."""

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
"""GiB that a tier of premium SSD disks has at most (learn.microsoft.com disks-types)."""


@dataclass(frozen=True, slots=True)
class Machines:
    """VMs of one size."""

    size: str
    count: int
    spot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of thing that will be there."""

    what: str
    name: str = ""
    """Azure's name where there is one such thing."""
    count: int = 1
    billing: Billing = "free"
    meter: Meter | None = None
    """With ``billing: meter``."""
    units: int = 1
    """Of the meter, for each one: GiB of a share."""
    size: str | None = None
    """With ``billing: vm``."""
    spot: bool = False
    note: str = ""
    """What else it costs, or why nobody knows."""


def parts(stack: str, config: ClusterConfig) -> tuple[Part, ...]:
    """Everything that the program makes for ``config``, in the order in which people think of it."""
    name = cluster_name(stack)
    size, count = config.size.name, config.node_count
    return (
        Part(what=NODE, name=name, count=count, billing="vm", size=size, spot=config.spot),
        _os_disks(config),
        *_network(stack, config),
        *_storage(name, config),
        *_shared_folder(name, config),
        Part(what="resource group", name=name),
        *([Part(what="resource group", name=data_group_name(stack))] if config.owns_data else []),
    )


def machines_of(made: Iterable[Part]) -> tuple[Machines, ...]:
    """The VMs among the parts, the nodes first."""
    return tuple(Machines(one.size, one.count, one.spot) for one in made if one.size is not None)


def server_name(name: str, config: ClusterConfig) -> str | None:
    """The NFS server's name in the cluster called ``name``, where it has one."""
    return f"{name}-nfs" if config.nfs == "vm" else None


def premium_disk(gib: int) -> Meter | None:
    """What a premium SSD disk of that size is billed by; ``None`` for one that is larger than Azure's.

    >>> premium_disk(1000).name, premium_disk(1025).name, premium_disk(40000)
    ('P30 LRS Disk', 'P40 LRS Disk', None)
    """
    tier = next((tier for most, tier in _TIERS.items() if gib <= most), None)
    return None if tier is None else Meter("Storage", f"{tier} LRS Disk", "Premium SSD Managed Disks")


def _os_disks(config: ClusterConfig) -> Part:
    if config.ephemeral_os_disk:
        # learn.microsoft.com "Ephemeral OS disks": no storage is billed for them.
        return Part(what="OS disk", count=config.node_count, note="on the node itself")
    return _os_disk(config.node_count)


def _os_disk(count: int, name: str = "") -> Part:
    note = "premium disk of the image's size, which is not asked for"
    return Part(what="OS disk", name=name, count=count, billing="unknown", note=note)


def _network(stack: str, config: ClusterConfig) -> list[Part]:
    name = cluster_name(stack)
    made: list[Part] = []
    if config.vnet_id is None and config.subnet_id is None:
        made.append(Part(what="virtual network", name=network_name(stack)))
    if config.subnet_id is None:
        made += [
            Part(what="subnet", name=subnet_name(stack, shared=config.vnet_id is not None)),
            Part(what="NAT gateway", name=f"{name}-nat", billing="meter", meter=NAT, note="and by traffic"),
            Part(what="public IP address", name=f"{name}-nat-ip", billing="meter", meter=ADDRESS),
        ]
    made.append(Part(what="network security group", name=f"{name}-nsg"))
    if config.access == "public":
        made += [
            # Inbound NAT rules are free, and so is a balancer without other rules: learn.microsoft.com
            # "Windows N-tier application", cost of Load Balancer.
            Part(what="load balancer", name=f"{name}-lb", note="NAT rules only; by traffic"),
            Part(what="public IP address", name=f"{name}-lb-ip", billing="meter", meter=ADDRESS),
        ]
    return made


def _storage(name: str, config: ClusterConfig) -> list[Part]:
    made: list[Part] = []
    if config.needs_identity:
        made.append(Part(what="identity of the nodes", name=f"{name}-nodes", note="and its rights"))
    if config.storage == "none":
        return made
    if config.storage_account_id is None:
        note = "by what is stored and asked for"
        made.append(Part(what="storage account", billing="unknown", note=note))
    if config.storage == "privateEndpoint":
        made += _endpoint(f"{name}-blob", "blob")
    return made


def _endpoint(name: str, service: str) -> list[Part]:
    zone = f"privatelink.{service}.core.windows.net"
    return [
        Part(what="private endpoint", name=name, billing="meter", meter=ENDPOINT, note="and by traffic"),
        Part(what="private DNS zone", name=zone, billing="unknown", note="by zone and by what is asked"),
    ]


def _shared_folder(name: str, config: ClusterConfig) -> list[Part]:
    if config.nfs == "files":
        gib = config.nfs_size_gib
        share = Part(
            what="NFS share", name="shared", billing="meter", meter=NFS_SHARE, units=gib, note=f"{gib} GiB"
        )
        private = config.storage == "privateEndpoint"
        return [share, *(_endpoint(f"{name}-file", "file") if private else [])]
    if config.nfs == "none":
        return []
    server, striped = f"{name}-nfs", stripes(config.nfs_size_gib)
    meter = premium_disk(striped.disk_gib)
    return [
        Part(what="NFS server", name=server, billing="vm", size=SERVER_SIZE),
        _os_disk(1, server),
        Part(
            what="NFS disk",
            name=f"{server}-0 …",
            count=striped.disks,
            billing="unknown" if meter is None else "meter",
            meter=meter,
            note=f"{striped.disk_gib} GiB each",
        ),
    ]
