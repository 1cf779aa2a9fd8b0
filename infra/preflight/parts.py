"""The parts of a cluster with what bills each, listed from the configuration before anything is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from infra.cluster.shared.registry import KINDS
from infra.config.cluster_config import ClusterConfig
from infra.naming import cluster_name, data_group_name, monitor_name, network_name, subnet_name
from infra.preflight.meters import ADDRESS, NAT, Part, endpoint_parts, os_disk

__all__ = ["NODE", "Machines", "machines_of", "parts", "server_name"]

NODE = "node"
""":attr:`Part.what` of the nodes."""


@dataclass(frozen=True, slots=True)
class Machines:
    """VMs of one size."""

    size: str
    count: int
    spot: bool


def parts(stack: str, config: ClusterConfig, disks: Sequence[int] = ()) -> tuple[Part, ...]:
    """Return everything that the program makes for ``config``, the most important first.

    ``disks`` are the GiB of existing OS disks that stay: a change of size is for later nodes alone.
    """
    name = cluster_name(stack)
    size, count = config.size.name, config.node_count
    return (
        Part(what=NODE, name=name, count=count, billing="vm", size=size, spot=config.spot),
        *_os_disks(config, disks),
        *_network(stack, config),
        *_storage(name, config),
        *_monitor(stack, config),
        *(KINDS[config.shared.kind].parts(name, config) if config.shared else ()),
        Part(what="resource group", name=name),
        *([Part(what="resource group", name=data_group_name(stack))] if config.owns_data else []),
    )


def machines_of(made: Iterable[Part]) -> tuple[Machines, ...]:
    """Return the VMs among the parts, the nodes first."""
    return tuple(Machines(one.size, one.count, one.spot) for one in made if one.size is not None)


def server_name(made: Iterable[Part]) -> str | None:
    """Return the name of the shared storage's server, if the parts have one."""
    return next((one.name for one in made if one.size is not None and one.what != NODE), None)


def _os_disks(config: ClusterConfig, disks: Sequence[int]) -> list[Part]:
    if config.ephemeral_os_disk:
        # learn.microsoft.com "Ephemeral OS disks": no storage is billed for them.
        return [Part(what="OS disk", count=config.node_count, note="on the node itself")]
    stay = disks[: config.node_count]
    sizes = Counter([*stay, *[config.os_disk_gib] * (config.node_count - len(stay))])
    return [os_disk(count, gib=gib) for gib, count in sizes.items()]


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


def _monitor(stack: str, config: ClusterConfig) -> list[Part]:
    if not config.monitor:
        return []
    # learn.microsoft.com prometheus-metrics-overview: billed by what comes in and by queries, storage is
    # free. What the price list calls it is not known here, and how much comes in depends on the jobs.
    note = "by samples sent and by queries"
    name = monitor_name(stack)
    return [
        Part(what="Azure Monitor workspace", name=name, billing="unknown", note=note),
        Part(what="data collection endpoint", name=name),
        Part(what="data collection rule", name=name),
    ]


def _storage(name: str, config: ClusterConfig) -> list[Part]:
    made: list[Part] = []
    if config.needs_identity:
        made.append(Part(what="identity of the nodes", name=f"{name}-nodes", note="and its rights"))
    if config.storage == "none":
        return made
    if config.storage_account_id is None:
        note = "by stored data and requests"
        made.append(Part(what="storage account", billing="unknown", note=note))
    if config.storage == "privateEndpoint":
        made += endpoint_parts(f"{name}-blob", "blob")
    return made
