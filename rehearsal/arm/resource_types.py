"""The resource types of the emulation: one entry here and one file in a room for each, or each family."""

from __future__ import annotations

from rehearsal.arm.auth import identities, role_assignments, role_definitions
from rehearsal.arm.compute import galleries, image_templates, managed_disks, scale_sets, virtual_machines
from rehearsal.arm.core.registry import ResourceTypes
from rehearsal.arm.network import (
    load_balancers,
    nat_gateways,
    network_interfaces,
    private_dns,
    private_endpoints,
    public_ips,
    security_groups,
    virtual_networks,
)
from rehearsal.arm.storage import accounts, blob_containers, file_shares

__all__ = ["ENTRIES", "RESOURCE_TYPES"]

ENTRIES = (
    *virtual_networks.ENTRIES,
    *security_groups.ENTRIES,
    *nat_gateways.ENTRIES,
    *public_ips.ENTRIES,
    *load_balancers.ENTRIES,
    *network_interfaces.ENTRIES,
    *private_endpoints.ENTRIES,
    *private_dns.ENTRIES,
    *scale_sets.ENTRIES,
    *virtual_machines.ENTRIES,
    *managed_disks.ENTRIES,
    *galleries.ENTRIES,
    *image_templates.ENTRIES,
    *identities.ENTRIES,
    *role_definitions.ENTRIES,
    *role_assignments.ENTRIES,
    *accounts.ENTRIES,
    *blob_containers.ENTRIES,
    *file_shares.ENTRIES,
)
RESOURCE_TYPES = ResourceTypes(ENTRIES)
