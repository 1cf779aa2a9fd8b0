"""The resource types of the emulation: one entry here and one file in a room for each, or each family."""

from __future__ import annotations

from rehearsal.arm.auth import identities, role_resources
from rehearsal.arm.compute import (
    galleries,
    image_templates,
    managed_disks,
    physical_hosts,
    scale_sets,
    virtual_machines,
)
from rehearsal.arm.core.registry import Entry, ResourceTypes
from rehearsal.arm.monitor import data_collection, workspaces
from rehearsal.arm.network import (
    load_balancers,
    network_interfaces,
    private_dns,
    private_endpoints,
    public_ips,
    security_groups,
    virtual_networks,
)
from rehearsal.arm.storage import accounts, container_registries, contents

__all__ = ["ENTRIES", "RESOURCE_TYPES"]

_FAMILIES = (
    *(virtual_networks, security_groups, public_ips, load_balancers, network_interfaces),
    *(private_endpoints, private_dns, scale_sets, virtual_machines, managed_disks, galleries),
    *(image_templates, identities, role_resources, accounts, contents, container_registries),
    *(physical_hosts, workspaces, data_collection),
)
ENTRIES: tuple[Entry, ...] = tuple(entry for family in _FAMILIES for entry in family.ENTRIES)
RESOURCE_TYPES = ResourceTypes(ENTRIES)
