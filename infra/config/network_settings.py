"""The settings of the network: readers of address ranges, and checks across settings."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

from infra.config.cluster_config import ClusterConfig, subnet_of
from infra.config.collector import NotSet, Settings
from infra.config.readers import KEY, string_list, text, whole_number
from launch.errors import InputError
from launch.numbers import shown

__all__ = ["metrics_port", "mismatches", "private_prefix", "ssh_sources"]

_RDMA = IPv4Network("172.16.0.0/16")
"""Azure's InfiniBand network uses these addresses inside the VMs (azure-docs sizes-hpc.md)."""

_WIDEST_SOURCE = 8
_WIDEST_NETWORK, _NARROWEST_NETWORK = 8, 29  # Azure's own limits for a virtual network
_FIRST_PORT, _LAST_PORT = 1024, 65535
_RESERVED = 5  # network, gateway, two for DNS, broadcast: Azure keeps them in every subnet


def ssh_sources(key: str, value: object) -> tuple[str, ...]:
    """Read the networks that may open ssh connections: one CIDR, several with commas between, or a list.

    >>> ssh_sources("sshFrom", "203.0.113.7, 198.51.100.0/24")
    ('203.0.113.7/32', '198.51.100.0/24')

    Raises :class:`~launch.errors.InputError`, also for networks wider than a /8.
    """
    sources = tuple(_source(key, part) for part in string_list(key, value))
    if not sources:
        raise InputError(key, str(value), "lists no network", _MINE)
    return sources


_MINE = "give the address you connect from, like 203.0.113.7/32 (`curl https://api.ipify.org` shows it)"


def _source(key: str, part: str) -> str:
    network = _network(key, part, _MINE)
    if network.prefixlen < _WIDEST_SOURCE:
        raise InputError(key, part, "would open ssh to the world", _MINE)
    if isinstance(network, IPv6Network):
        raise InputError(key, part, "is IPv6, but the cluster's public address is IPv4", _MINE)
    return str(network)


def metrics_port(key: str, value: object) -> int:
    """Read the TCP port of the nodes' metrics: one that needs no root."""
    remedy = f"set it to a port from {_FIRST_PORT} to {_LAST_PORT}, like 9500"
    port = whole_number(key, value, remedy)
    if not _FIRST_PORT <= port <= _LAST_PORT:
        raise InputError(key, shown(value, port), "is not a port that an ordinary user may serve", remedy)
    return port


def private_prefix(key: str, value: object, nodes: int) -> str:
    """Read the address range of a virtual network of so many InfiniBand nodes.

    Raises :class:`~launch.errors.InputError` for overlap with Azure's InfiniBand addresses, for ranges that
    no virtual network can have, and for too few addresses.
    """
    given = text(key, value)
    network = _network(key, given, "give a private range like 10.0.0.0/16")
    if isinstance(network, IPv6Network):
        raise InputError(key, given, "is IPv6", "give an IPv4 range like 10.0.0.0/16")
    if network.overlaps(_RDMA):
        raise InputError(
            key,
            given,
            f"overlaps {_RDMA}, which Azure's InfiniBand network uses inside the VMs",
            "use another range, like 10.0.0.0/16",
        )
    if not network.is_private or network.is_loopback or network.is_link_local:
        raise InputError(key, given, "is not a private range", "use a part of 10.0.0.0/8 or 192.168.0.0/16")
    if not _WIDEST_NETWORK <= network.prefixlen <= _NARROWEST_NETWORK:
        raise InputError(
            key,
            given,
            f"is not between /{_WIDEST_NETWORK} and /{_NARROWEST_NETWORK}, Azure's limits",
            "use a range like 10.0.0.0/16",
        )
    free = IPv4Network(subnet_of(str(network))).num_addresses - _RESERVED
    if free < nodes:
        raise InputError(
            key,
            given,
            f"has {free} addresses for nodes (Azure keeps {_RESERVED}), and {nodes} nodes need one each",
            f"use a /{32 - (nodes + _RESERVED - 1).bit_length()} or a larger range",
        )
    return str(network)


def mismatches(config: ClusterConfig, settings: Settings) -> Iterator[InputError]:
    """Yield an error for each combination of network settings that makes no sense."""
    if config.vnet_id and config.subnet_id:
        yield InputError(
            f"{KEY}vnetId",
            config.vnet_id,
            f"is given beside {KEY}subnetId, which already implies the network",
            f"remove {KEY}vnetId to use the subnet, or {KEY}subnetId to have one created",
        )
    given = "vnetId" if config.vnet_id else "subnetId" if config.subnet_id else None
    if given and settings.has("vnetPrefix"):
        yield InputError(
            f"{KEY}vnetPrefix",
            config.vnet_prefix,
            f"is the range of a network to be made, but {KEY}{given} gives one that exists",
            f"remove it: {KEY}subnetPrefix is the range of the nodes",
        )
    if given and not config.given_subnet_prefix:
        remedy = "that subnet's range" if given == "subnetId" else "a range in it that is free"
        yield NotSet(
            f"{KEY}subnetPrefix",
            f"is not set, but {KEY}{given} is, whose addresses are not known here",
            f"set it to {remedy}, like 10.1.0.0/24 (pulumi config set {KEY}subnetPrefix …)",
        )
    if config.given_subnet_prefix and not given:
        yield InputError(
            f"{KEY}subnetPrefix",
            config.given_subnet_prefix,
            f"is for an existing network, and neither {KEY}vnetId nor {KEY}subnetId is set",
            f"set one of them, or remove it: {KEY}vnetPrefix is the range of a network that is made",
        )
    free = IPv4Network(config.subnet_prefix).num_addresses - _RESERVED
    if config.node_count <= free < config.node_count + config.other_addresses:
        yield InputError(
            f"{KEY}{'subnetPrefix' if config.given_subnet_prefix else 'vnetPrefix'}",
            config.subnet_prefix,
            f"has {free} addresses (Azure keeps {_RESERVED}); {config.node_count} nodes, private endpoints "
            f"and shared storage need {config.node_count + config.other_addresses}",
            "use a larger range",
        )


def _network(key: str, given: str, remedy: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(given)
    except ValueError:
        pass  # parsed again below, for a better message
    try:
        loose = ip_network(given, strict=False)
    except ValueError:
        raise InputError(key, given, "is not a network in CIDR notation", remedy) from None
    if loose.prefixlen < _WIDEST_SOURCE:
        return loose
    raise InputError(key, given, "has bits set behind its prefix", f"write {loose}, or /32 for one address")
