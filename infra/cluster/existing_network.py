"""Whether an existing network fits the configuration, checked before anything is made in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pulumi
from pulumi_azure_native.network.virtual_network import VirtualNetwork

from infra.config.arm_ids import split
from infra.config.cluster_config import ClusterConfig
from infra.config.readers import KEY
from launch.errors import InputError

__all__ = ["CheckedNetwork", "SubnetFacts", "VnetFacts", "checked_network", "problem"]

_SERVICE = "Microsoft.Storage"


@dataclass(frozen=True, slots=True)
class SubnetFacts:
    """One subnet, as it is in Azure."""

    name: str
    prefixes: tuple[str, ...]
    services: tuple[str, ...] = ()
    """Services that it has endpoints for."""


@dataclass(frozen=True, slots=True)
class VnetFacts:
    """A virtual network, as it is in Azure."""

    location: str
    prefixes: tuple[str, ...]
    subnets: tuple[SubnetFacts, ...] = ()
    dns_servers: tuple[str, ...] = ()
    """DNS servers of its own; empty with Azure's."""


@dataclass(frozen=True, slots=True)
class CheckedNetwork:
    """An existing network; both are known once the check has passed, so that later steps wait for it."""

    vnet_id: pulumi.Output[str]
    dns_servers: pulumi.Output[list[str]]


def checked_network(
    vnet_id: str, config: ClusterConfig, own: str, opts: pulumi.ResourceOptions
) -> CheckedNetwork:
    """Return the virtual network with that id.

    ``own`` is the name of the subnet to be made in it. Waiting steps fail with ``pulumi.RunError`` if the
    network does not fit or does not exist.
    """
    found = VirtualNetwork.get("given-network", vnet_id, opts)

    def look(seen: Sequence[Any]) -> list[str]:
        location, space, subnets, *dhcp = seen
        facts = VnetFacts(
            location or "",
            tuple(_part(space, "addressPrefixes") or ()),
            tuple(_subnet_facts(subnet) for subnet in subnets or ()),
            tuple(_part(dhcp[0], "dnsServers") or ()) if dhcp else (),
        )
        error = problem(config, facts, own)
        if error is not None:
            raise pulumi.RunError(str(error))
        return list(facts.dns_servers)

    always = (found.location, found.address_space, found.subnets)
    dns_servers = pulumi.Output.all(*always, found.dhcp_options).apply(look)
    # To a preview, properties that a network lacks are unknown, and so would all be that waits for them.
    sound = pulumi.Output.all(*always).apply(look) if pulumi.runtime.is_dry_run() else dns_servers
    return CheckedNetwork(sound.apply(lambda _sound: vnet_id), dns_servers)


def problem(config: ClusterConfig, facts: VnetFacts, own: str) -> InputError | None:
    """Return why the nodes cannot use the network, if they cannot."""
    key, value = ("vnetId", config.vnet_id) if config.vnet_id else ("subnetId", config.subnet_id)
    if facts.location.lower().replace(" ", "") != config.location:
        return InputError(
            f"{KEY}{key}",
            value,
            f"is in {facts.location or 'no region'}, and the nodes will be in {config.location}",
            f"set {KEY}location to the network's region, or give a network of {config.location}",
        )
    if facts.dns_servers and config.storage == "privateEndpoint":
        return InputError(
            f"{KEY}storage",
            config.storage,
            "names its address in a private DNS zone, which Azure's DNS alone knows, and the network has DNS "
            f"servers of its own: {', '.join(facts.dns_servers)}",
            "set it to serviceEndpoint, or give a network with Azure's DNS",
        )
    if config.subnet_id is not None:
        return _subnet_problem(config, facts)
    prefix = ip_network(config.subnet_prefix)
    # mypy cannot see that both are IPv4.
    inside = [p for p in map(ip_network, facts.prefixes) if p.version == prefix.version]
    if not any(prefix.subnet_of(space) for space in inside):  # type: ignore[arg-type]
        return InputError(
            f"{KEY}subnetPrefix",
            config.subnet_prefix,
            f"is not in the network, which has {', '.join(facts.prefixes)}",
            "use a free part of that",
        )
    for subnet in facts.subnets:
        if subnet.name != own and any(prefix.overlaps(ip_network(taken)) for taken in subnet.prefixes):
            return InputError(
                f"{KEY}subnetPrefix",
                config.subnet_prefix,
                f"overlaps {', '.join(subnet.prefixes)}, which the subnet {subnet.name} has",
                f"use a part of {', '.join(facts.prefixes)} that is free",
            )
    return None


def _subnet_problem(config: ClusterConfig, facts: VnetFacts) -> InputError | None:
    assert config.subnet_id is not None  # noqa: S101 - the caller saw to it
    name = split(config.subnet_id).names[-1]
    named = [subnet for subnet in facts.subnets if subnet.name.lower() == name.lower()]
    if not named:
        there = ", ".join(subnet.name for subnet in facts.subnets) or "none"
        return InputError(
            f"{KEY}subnetId", config.subnet_id, "does not exist", f"the network's subnets are: {there}"
        )
    (subnet,) = named
    if config.subnet_prefix not in subnet.prefixes:
        return InputError(
            f"{KEY}subnetPrefix",
            config.subnet_prefix,
            f"is not the range of the subnet, which is {', '.join(subnet.prefixes)}",
            "set it to that: the nodes know each other by it",
        )
    if config.needs_service_endpoint and not any(s.startswith(_SERVICE) for s in subnet.services):
        return InputError(
            f"{KEY}subnetId",
            config.subnet_id,
            f"has no service endpoint for {_SERVICE}, and an existing subnet is never changed",
            f"give it one (`az network vnet subnet … --service-endpoints {_SERVICE}`), or "
            f"set {KEY}storage to privateEndpoint",
        )
    return None


def _subnet_facts(subnet: Any) -> SubnetFacts:
    prefixes = _part(subnet, "addressPrefixes") or [_part(subnet, "addressPrefix")]
    services = [_part(endpoint, "service") for endpoint in _part(subnet, "serviceEndpoints") or ()]
    return SubnetFacts(
        _part(subnet, "name") or "",
        tuple(prefix for prefix in prefixes if prefix),
        tuple(service for service in services if service),
    )


def _part(of: Any, name: str) -> Any:
    # Pulumi gives properties that were read, not made, under Azure's names or under Python's.
    own = re.sub("([A-Z])", lambda capital: f"_{capital[1].lower()}", name)
    return (of or {}).get(name, (of or {}).get(own))
