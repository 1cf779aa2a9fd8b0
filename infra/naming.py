"""Names of a stack's Azure resources, derived from the stack's name alone."""

from __future__ import annotations

import hashlib
import re
import uuid

__all__ = [
    "AGENT",
    "AGENT_TAG",
    "BACKEND_POOL",
    "BLOBS",
    "CONTAINERS",
    "CONTAINER_REGISTRY",
    "CONTAINER_REPOSITORIES",
    "IDENTITY_TAG",
    "IDLE_TAG",
    "METRICS_TAG",
    "MONITOR_TAG",
    "NFS_TAG",
    "OFFER_UNKNOWN",
    "OWN_TAGS",
    "STACK_TAG",
    "STOPPED_TAG",
    "TTL_TAG",
    "cluster_name",
    "data_group_name",
    "is_own_data",
    "monitor_name",
    "network_name",
    "own_uuid",
    "right_on",
    "storage_name",
    "subnet_name",
]

OFFER_UNKNOWN = "RehearsalDoesNotKnowOffer"
"""A capability that only a rehearsal's SKUs have: it does not know whether the region has the size."""

STACK_TAG = "ranklift-stack"
"""The tag that every resource of a stack carries, with the stack's name as its value."""

TTL_TAG, IDLE_TAG = "ranklift-ttl-hours", "ranklift-idle-stop-minutes"
"""Tags of the scale set that its nodes read from the metadata service, so that a change reaches them."""

NFS_TAG = "ranklift-nfs"
"""Tag of the scale set with the kind of shared storage that its nodes mounted at their first boot."""

METRICS_TAG = "ranklift-metrics-port"
"""Tag of the scale set with the port at which its nodes serve metrics since their first boot."""

MONITOR_TAG = "ranklift-monitor"
"""Tag of the scale set with the address at Azure Monitor to which its nodes send their metrics."""

IDENTITY_TAG = "ranklift-identity"
"""Tag of the scale set with its identity's client id, which chooses among several identities of a machine:
a policy of the subscription may add some."""

STOPPED_TAG = "ranklift-stopped"
"""Tag of the scale set with the time and reason of an idle stop, by agents older than :data:`AGENT`."""

AGENT_TAG, AGENT = "ranklift-agent", "2"
"""Tag of the scale set with the version of the agent that its nodes boot with, which stays as long as the set
does. The agent of a set without it writes the capacity to stop idle nodes; from 2 on it deletes them."""

OWN_TAGS = frozenset(
    {
        *(AGENT_TAG, STACK_TAG, TTL_TAG, IDLE_TAG, NFS_TAG),
        *(METRICS_TAG, MONITOR_TAG, IDENTITY_TAG, STOPPED_TAG),
    }
)
"""Tags of the program and the nodes, which the user therefore cannot set."""

BACKEND_POOL = "nodes"
"""Name of the load balancer's backend pool, which the nodes join."""

CONTAINERS = ("data", "results")
"""Containers on which the nodes have rights, in an existing storage account as in the stack's own."""

CONTAINER_REGISTRY, CONTAINER_REPOSITORIES = "container-registry", "container-repositories"
"""Purposes of the nodes' rights on an existing container registry, for :func:`right_on`: which of the two
counts depends on the registry's mode."""

BLOBS = "storage"
"""Purpose of the containers' storage account, for :func:`storage_name`."""

_STORAGE_STACK, _STORAGE_DIGEST = 10, 12  # with "rl" before them 24 characters
_UUIDS = uuid.UUID("b0b9dd12-6a0e-5f55-9c0e-3a3d3cf9b7d1")
_LONGEST = 40  # a scale set's name may have 64 characters, and "ranklift-" comes before


def cluster_name(stack: str) -> str:
    """Return the name of the stack's resource group and scale set, and the prefix of its other names.

    Names altered to fit Azure's rules end in a digest, so that no two stacks share a name.

    >>> cluster_name("dev"), cluster_name("rehearsal-2"), cluster_name("Dev")
    ('ranklift-dev', 'ranklift-rehearsal-2', 'ranklift-dev-9c24f4')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")
    if plain != stack or len(plain) > _LONGEST:
        plain = _shortened(plain, stack).lstrip("-")
    return f"ranklift-{plain}"


def _shortened(name: str, full: str) -> str:
    """Return the beginning of a name, with a digest of the full one so that names stay different."""
    return f"{name[: _LONGEST - 7].rstrip('-')}-{hashlib.sha256(full.encode()).hexdigest()[:6]}"


def data_group_name(stack: str) -> str:
    """Return the resource group of what the stack stores: a separate one, which can outlive the nodes.

    >>> data_group_name("dev")
    'ranklift-dev-data'
    """
    return f"{cluster_name(stack)}-data"


def is_own_data(stack: str, resource_id: str | None) -> bool:
    """Whether an existing resource is one that the stack itself made and kept.

    >>> is_own_data("dev", "/subscriptions/s/resourcegroups/Ranklift-dev-data/providers/N/a/b")
    True
    """
    return f"/resourcegroups/{data_group_name(stack)}/" in (resource_id or "").lower()


def monitor_name(stack: str) -> str:
    """Return the name of the stack's Azure Monitor workspace, and of its endpoint and rule.

    It is shorter than the cluster's name may be: Azure makes host names of it.

    >>> monitor_name("dev"), monitor_name("a" * 40)
    ('ranklift-dev', 'ranklift-aaaaaaaaaaaaaaaaaaaaaaaa-fbe194')
    """
    name = cluster_name(stack)
    return name if len(name) <= _LONGEST else _shortened(name, name)


def network_name(stack: str) -> str:
    """Return the name of the stack's own virtual network."""
    return f"{cluster_name(stack)}-vnet"


def subnet_name(stack: str, *, shared: bool) -> str:
    """Return the name of the stack's subnet; in a ``shared`` network other stacks have theirs too."""
    return cluster_name(stack) if shared else "nodes"


def right_on(purpose: str) -> str:
    """Return the name of a role assignment, from which its UUID is made."""
    return f"{purpose}-right"


def storage_name(stack: str, subscription: str, purpose: str = "blob") -> str:
    """Return the name of a storage account, unique in all of Azure: 3 to 24 of a-z and 0-9.

    >>> storage_name("dev", "00000000-0000-0000-0000-000000000001")
    'rldev32266166fb07'
    """
    plain = re.sub("[^a-z0-9]", "", stack.lower())[:_STORAGE_STACK]
    digest = hashlib.sha256(f"{subscription.lower()}/{stack}/{purpose}".encode()).hexdigest()
    return f"rl{plain}{digest[:_STORAGE_DIGEST]}"


def own_uuid(stack: str, subscription: str, purpose: str) -> str:
    """Return a UUID of the stack's own, for what Azure names by UUIDs: role definitions and assignments.

    >>> own_uuid("dev", "s", "role") == own_uuid("dev", "s", "role") != own_uuid("prod", "s", "role")
    True
    """
    return str(uuid.uuid5(_UUIDS, f"{subscription.lower()}/{stack}/{purpose}"))
