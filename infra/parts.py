"""What a cluster consists of, and what each part of it is billed by.

The program makes these (:mod:`infra.cluster`); here they are listed from the configuration alone, for the
plan that comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infra.config import ClusterConfig
from infra.naming import cluster_name
from infra.prices import Meter

__all__ = ["ADDRESS", "ENDPOINT", "NAT", "Billing", "Part", "parts"]

Billing = Literal["vm", "meter", "free", "use", "unknown"]
"""By the VM's hour, by a meter's hour, not at all, by what is done with it, or nobody here knows."""

# Names of meters as the price list has them, read in answers of the API that others have published.
ADDRESS = Meter("Virtual Network", "Standard IPv4 Static Public IP", "IP Addresses")
NAT = Meter("NAT Gateway", "Standard Gateway", everywhere=True)
ENDPOINT = Meter(
    "Virtual Network", "Standard Private Endpoint", "Virtual Network Private Link", everywhere=True
)


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
    size: str | None = None
    """With ``billing: vm``."""
    note: str = ""
    """What else it costs, or why nobody knows."""


def parts(stack: str, config: ClusterConfig) -> tuple[Part, ...]:
    """Everything that the program makes for ``config``, in the order in which people think of it."""
    name = cluster_name(stack)
    return (
        Part(
            what="node",
            name=name,
            count=config.node_count,
            billing="vm",
            size=config.size.name,
        ),
        _os_disks(config),
        *_network(name, config),
        Part(what="resource group", name=name),
    )


def _os_disks(config: ClusterConfig) -> Part:
    if config.ephemeral_os_disk:
        # learn.microsoft.com "Ephemeral OS disks": no storage is billed for them.
        return Part(what="OS disk", count=config.node_count, note="on the node itself")
    return Part(
        what="OS disk",
        count=config.node_count,
        billing="unknown",
        note="premium disk of the image's size, which is not asked for",
    )


def _network(name: str, config: ClusterConfig) -> list[Part]:
    made: list[Part] = []
    if config.subnet_id is None:
        if config.vnet_id is None:
            made.append(Part(what="virtual network", name=f"{name}-vnet"))
        made += [
            Part(what="subnet", name="nodes"),
            Part(what="network security group", name=f"{name}-nsg"),
            Part(what="NAT gateway", name=f"{name}-nat", billing="meter", meter=NAT, note="and by traffic"),
            Part(what="public IP address", name=f"{name}-nat-ip", billing="meter", meter=ADDRESS),
        ]
    if config.access == "public":
        made += [
            # Inbound NAT rules are free, and so is a balancer without other rules: learn.microsoft.com
            # "Windows N-tier application", cost of Load Balancer.
            Part(what="load balancer", name=f"{name}-lb", note="NAT rules only; by traffic"),
            Part(what="public IP address", name=f"{name}-lb-ip", billing="meter", meter=ADDRESS),
        ]
    return made
