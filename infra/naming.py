"""Names of a stack's Azure resources: derived from the stack alone, so that anyone can find them."""

from __future__ import annotations

import hashlib
import re
import uuid

__all__ = [
    "BACKEND_POOL",
    "BLOBS",
    "CONTAINERS",
    "IDENTITY_TAG",
    "IDLE_TAG",
    "NFS_TAG",
    "OFFER_UNKNOWN",
    "OWN_TAGS",
    "STACK_TAG",
    "STOPPED_TAG",
    "TTL_TAG",
    "cluster_name",
    "data_group_name",
    "is_own_data",
    "network_name",
    "own_uuid",
    "right_on",
    "storage_name",
    "subnet_name",
]

OFFER_UNKNOWN = "RehearsalDoesNotKnowOffer"
"""A capability that only a rehearsal's SKUs have: whether the region has the size is not known there."""

STACK_TAG = "ranklift-stack"
"""The tag that every resource of a stack carries, with the stack's name as its value."""

TTL_TAG, IDLE_TAG = "ranklift-ttl-hours", "ranklift-idle-stop-minutes"
"""Tags of the scale set that its nodes read from the metadata service, so that a change reaches them."""

NFS_TAG = "ranklift-nfs"
"""Tag of the scale set that says which shared folder its nodes have mounted at their first boot."""

IDENTITY_TAG = "ranklift-identity"
"""Tag of the scale set with its identity's client id: a machine may have more identities than the stack's
own, from a policy of the subscription for instance, and has to say then which of them it signs in as."""

STOPPED_TAG = "ranklift-stopped"
"""Tag with which the nodes say on their scale set why they stopped it (``STOPPED`` of
launch.remote.agent.autostop)."""

OWN_TAGS = frozenset({STACK_TAG, TTL_TAG, IDLE_TAG, NFS_TAG, IDENTITY_TAG, STOPPED_TAG})
"""What the program and the nodes tag with, and the user therefore cannot."""

BACKEND_POOL = "nodes"
"""Name of the load balancer's backend pool, which the nodes join."""

CONTAINERS = ("data", "results")
"""On which the nodes have rights, in a given storage account as in the stack's own."""

BLOBS = "storage"
"""What the storage account of the containers is for, as :func:`storage_name` takes it."""

_STORAGE_STACK, _STORAGE_DIGEST = 10, 12  # with "rl" before them 24 characters
_UUIDS = uuid.UUID("b0b9dd12-6a0e-5f55-9c0e-3a3d3cf9b7d1")
_LONGEST = 40  # a scale set's name may have 64 characters, and "ranklift-" comes before


def cluster_name(stack: str) -> str:
    """The name of the stack's resource group and scale set, and what its other resources begin with.

    Stack names may hold what Azure's names may not; those that had to be altered end in a digest, so that
    no two stacks share a name.

    >>> cluster_name("dev"), cluster_name("rehearsal-2"), cluster_name("Dev")
    ('ranklift-dev', 'ranklift-rehearsal-2', 'ranklift-dev-9c24f4')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")
    if plain != stack or len(plain) > _LONGEST:
        digest = hashlib.sha256(stack.encode()).hexdigest()[:6]
        plain = f"{plain[: _LONGEST - 7].rstrip('-')}-{digest}".lstrip("-")
    return f"ranklift-{plain}"


def data_group_name(stack: str) -> str:
    """The resource group of what the stack stores: its own, so that it can outlive the nodes.

    >>> data_group_name("dev")
    'ranklift-dev-data'
    """
    return f"{cluster_name(stack)}-data"


def is_own_data(stack: str, resource_id: str | None) -> bool:
    """Whether a given resource is one that the stack made itself, kept, and goes on with.

    >>> is_own_data("dev", "/subscriptions/s/resourcegroups/Ranklift-dev-data/providers/N/a/b")
    True
    """
    return f"/resourcegroups/{data_group_name(stack)}/" in (resource_id or "").lower()


def network_name(stack: str) -> str:
    """The virtual network that the stack makes for itself."""
    return f"{cluster_name(stack)}-vnet"


def subnet_name(stack: str, *, shared: bool) -> str:
    """The subnet that the stack makes: other stacks may have theirs in the same, ``shared`` network."""
    return cluster_name(stack) if shared else "nodes"


def right_on(purpose: str) -> str:
    """What a role assignment for that purpose is called, and its UUID made from."""
    return f"{purpose}-right"


def storage_name(stack: str, subscription: str, purpose: str = "blob") -> str:
    """The name of a storage account, which no other in all of Azure may have: 3 to 24 of a-z and 0-9.

    >>> storage_name("dev", "00000000-0000-0000-0000-000000000001")
    'rldev32266166fb07'
    """
    plain = re.sub("[^a-z0-9]", "", stack.lower())[:_STORAGE_STACK]
    digest = hashlib.sha256(f"{subscription.lower()}/{stack}/{purpose}".encode()).hexdigest()
    return f"rl{plain}{digest[:_STORAGE_DIGEST]}"


def own_uuid(stack: str, subscription: str, purpose: str) -> str:
    """A UUID that the stack alone has, for what Azure names by UUIDs: role definitions and assignments.

    >>> own_uuid("dev", "s", "role") == own_uuid("dev", "s", "role") != own_uuid("prod", "s", "role")
    True
    """
    return str(uuid.uuid5(_UUIDS, f"{subscription.lower()}/{stack}/{purpose}"))
