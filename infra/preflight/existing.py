"""Queries: what a stack's resource groups hold, and whether Pulumi's state has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.arm.pulumi_state import begun_in, resources
from infra.arm.rest import Rest
from infra.arm.types import api_version
from infra.naming import (
    BLOBS,
    CONTAINER_REGISTRY,
    CONTAINER_REPOSITORIES,
    CONTAINERS,
    STACK_TAG,
    own_uuid,
    right_on,
    storage_name,
)

__all__ = ["Kept", "group_there", "is_remembered", "rights_there"]

_GROUPS_API, _RIGHTS_API = api_version("Microsoft.Resources"), api_version("Microsoft.Authorization")
_NAMED_BY = {"ResourceGroup": "resourceGroupName", "RoleAssignment": "roleAssignmentName"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A resource group with one of a stack's names, as it is in Azure."""

    group: str
    things: tuple[str, ...]
    """Its resources, as ``type name``, e.g. ``Microsoft.Storage/storageAccounts rldev32266166fb07``."""
    account: str | None = None
    """Id of the storage account with the containers ``data`` and ``results``, if any."""
    deleting: bool = False
    owner: str | None = None
    """The stack in the group's tag; ``None``: no tag."""


def group_there(rest: Rest, subscription: str, stack: str, name: str) -> Kept | None:
    """Return the resource group called ``name``, one of the stack's names; ``None`` if there is none.

    Raises :class:`~infra.arm.errors.AzureRefused`.
    """
    base = f"/subscriptions/{subscription}"
    group = rest.find(f"{base}/resourcegroups/{name}", **{"api-version": _GROUPS_API})
    if group is None:
        return None
    tags = {str(key).lower(): value for key, value in (group.get("tags") or {}).items()}
    listed = list(rest.pages(f"{base}/resourceGroups/{name}/resources", **{"api-version": _GROUPS_API}))
    own = storage_name(stack, subscription, BLOBS)
    state = str((group.get("properties") or {}).get("provisioningState") or "")
    return Kept(
        group=name,
        things=tuple(f"{one.get('type')} {one.get('name')}" for one in listed),
        account=next((str(one["id"]) for one in listed if one.get("name") == own), None),
        deleting=state.lower() == "deleting",
        owner=tags.get(STACK_TAG),
    )


def rights_there(
    rest: Rest, subscription: str, stack: str, account_id: str | None, registry_id: str | None = None
) -> tuple[str, ...]:
    """Return the ids of the role assignments of the nodes on an existing storage account and registry.

    They lie outside the stack's groups, so deleting the groups leaves them. Raises
    :class:`~infra.arm.errors.AzureRefused`.
    """
    on_registry = (CONTAINER_REGISTRY, CONTAINER_REPOSITORIES) if registry_id else ()
    scopes = dict.fromkeys(on_registry, registry_id)
    if account_id:
        scopes |= {name: f"{account_id}/blobServices/default/containers/{name}" for name in CONTAINERS}
    found = []
    for purpose, scope in scopes.items():
        name = own_uuid(stack, subscription, right_on(purpose))
        identifier = f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}"
        if rest.find(identifier, **{"api-version": _RIGHTS_API}) is not None:
            found.append(identifier)
    return tuple(found)


def is_remembered(state: Mapping[str, Any], name: str) -> bool:
    """Whether Pulumi's ``state`` has the group or role assignment called ``name``, or was making it.

    >>> id = "/subscriptions/s/resourceGroups/ranklift-dev-data"
    >>> state = {"deployment": {"resources": [{"id": id}]}}
    >>> is_remembered(state, "ranklift-dev-data"), is_remembered(state, "ranklift-dev")
    (True, False)
    """
    return any(one.lower() == name.lower() for one in _names(state))


def _names(state: Mapping[str, Any]) -> Iterator[str]:
    for one in resources(state):
        before, _, name = str(one.get("id") or "").rpartition("/")
        if before.lower().endswith(("/resourcegroups", "/roleassignments")):
            yield name
    for begun in begun_in(state):
        one = begun.get("resource") or {}
        kind, inputs = str(one.get("type", "")).rpartition(":")[2], one.get("inputs") or {}
        if kind in _NAMED_BY:
            yield str(inputs.get(_NAMED_BY[kind], ""))
