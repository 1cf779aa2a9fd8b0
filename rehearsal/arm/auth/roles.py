"""Rights: what roles grant, and whether an assignment gives a principal a right."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.subscription import Subscription

__all__ = [
    "ASSIGNMENTS",
    "BUILT_IN",
    "DEFINITIONS",
    "Permission",
    "Role",
    "allows",
    "built_in",
    "check_guid",
    "definition",
    "refused",
    "roles_of",
]

ASSIGNMENTS = "Microsoft.Authorization/roleAssignments"
DEFINITIONS = "Microsoft.Authorization/roleDefinitions"


@dataclass(frozen=True, slots=True)
class Permission:
    """One block of a role: what it grants, less what it excludes."""

    actions: tuple[str, ...] = ()
    not_actions: tuple[str, ...] = ()
    data_actions: tuple[str, ...] = ()
    not_data_actions: tuple[str, ...] = ()

    def grants(self, action: str, data: bool = False) -> bool:
        """Whether it allows ``action``, with ``data`` on the data inside a resource.

        >>> Permission(("*",), ("Microsoft.Authorization/*/Write",)).grants("microsoft.compute/disks/write")
        True
        """
        given, taken = self.actions, self.not_actions
        if data:
            given, taken = self.data_actions, self.not_data_actions
        return _any(given, action) and not _any(taken, action)


@dataclass(frozen=True, slots=True)
class Role:
    """Role definition as the check needs it."""

    name: str
    permissions: tuple[Permission, ...]


def _any(patterns: Iterable[str], action: str) -> bool:
    return any(re.fullmatch(".*".join(map(re.escape, p.split("*"))), action, re.IGNORECASE) for p in patterns)


_CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
BUILT_IN: Mapping[str, Role] = {
    "8e3af657-a8ff-443c-a75c-2fe8c4bcb635": Role("Owner", (Permission(("*",)),)),
    "b24988ac-6180-42a0-ab88-20f7382dd24c": Role(
        "Contributor",
        (
            Permission(
                ("*",),
                (
                    "Microsoft.Authorization/*/Delete",
                    "Microsoft.Authorization/*/Write",
                    "Microsoft.Authorization/elevateAccess/Action",
                    "Microsoft.Blueprint/blueprintAssignments/write",
                    "Microsoft.Blueprint/blueprintAssignments/delete",
                    "Microsoft.Compute/galleries/share/action",
                ),
            ),
        ),
    ),
    "acdd72a7-3385-48ef-bd42-f606fba81ae7": Role("Reader", (Permission(("*/read",)),)),
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": Role(
        "Storage Blob Data Contributor",
        (
            Permission(
                actions=(
                    f"{_CONTAINERS}/delete",
                    f"{_CONTAINERS}/read",
                    f"{_CONTAINERS}/write",
                    "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",
                ),
                data_actions=tuple(
                    f"{_CONTAINERS}/blobs/{what}"
                    for what in ("delete", "read", "write", "move/action", "add/action")
                ),
            ),
        ),
    ),
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": Role(
        "Storage Blob Data Reader",
        (
            Permission(
                actions=(
                    f"{_CONTAINERS}/read",
                    "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",
                ),
                data_actions=(f"{_CONTAINERS}/blobs/read",),
            ),
        ),
    ),
}
"""Azure's own roles by id (learn.microsoft.com role-based-access-control/built-in-roles), as far as a
training cluster meets them; any other id is a role that does not exist here.
"""


def built_in(subscription: str, role_id: str) -> dict[str, Any]:
    """Return one of Azure's own roles as a GET shows it."""
    role = BUILT_IN[role_id]
    return {
        "id": f"/subscriptions/{subscription}/providers/{DEFINITIONS}/{role_id}",
        "name": role_id,
        "type": DEFINITIONS,
        "properties": {
            "roleName": role.name,
            "type": "BuiltInRole",
            "description": "",
            "assignableScopes": ["/"],
            "permissions": [
                {
                    "actions": list(p.actions),
                    "notActions": list(p.not_actions),
                    "dataActions": list(p.data_actions),
                    "notDataActions": list(p.not_data_actions),
                }
                for p in role.permissions
            ],
        },
    }


def definition(subscription: Subscription, role_id: str) -> Role | None:
    """Return the role of this id, or of an id's last part: a built-in or a custom one."""
    guid = role_id.rpartition("/")[2].lower()
    found = BUILT_IN.get(guid)
    if found is not None:
        return found
    for record in subscription.of_type(DEFINITIONS):
        if record.id.name.lower() == guid and record.state != "Deleting":
            blocks = record.properties.get("permissions") or ()
            return Role(str(record.properties.get("roleName")), tuple(_permission(b) for b in blocks))
    return None


def _permission(block: Mapping[str, Any]) -> Permission:
    names = ("actions", "notActions", "dataActions", "notDataActions")
    return Permission(*(tuple(block.get(n) or ()) for n in names))


def roles_of(subscription: Subscription, principal: str, scope: ResourceId) -> Iterator[Role]:
    """Yield the roles of a principal at ``scope``, by assignments there and on everything around it."""
    for record in subscription.of_type(ASSIGNMENTS):
        own = str(record.properties.get("principalId", "")).lower() == principal.lower()
        if own and record.state != "Deleting" and record.id.base.contains(scope):
            role = definition(subscription, str(record.properties.get("roleDefinitionId")))
            if role is not None:
                yield role


def allows(
    subscription: Subscription, principal: str, action: str, scope: ResourceId, data: bool = False
) -> bool:
    """Whether ``principal`` (an object id) may do ``action`` at ``scope``; with ``data`` a data action."""
    roles = roles_of(subscription, principal, scope)
    return any(p.grants(action, data) for role in roles for p in role.permissions)


def refused(client: str, principal: str, action: str, scope: ResourceId) -> ArmError:
    """Return Azure's refusal of an action that no role allows."""
    return ArmError(
        403,
        "AuthorizationFailed",
        f"The client '{client}' with object id '{principal}' does not have authorization to perform action "
        f"'{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please "
        "refresh your credentials.",
    )


def check_guid(what: str, rid: ResourceId, code: str) -> None:
    """Refuse a name that is not a GUID."""
    try:
        uuid.UUID(rid.name)
    except ValueError:
        problem = f"The {what} ID '{rid.name}' is not valid. The {what} ID must be a GUID."
        raise ArmError(400, code, problem) from None
