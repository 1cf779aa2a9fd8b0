"""Rights: what roles grant, and whether an assignment gives a principal a right."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.subscription import Subscription

__all__ = [
    "ASSIGNMENTS",
    "BUILT_IN",
    "DEFINITIONS",
    "allows",
    "built_in",
    "check_guid",
    "definition",
    "grants",
    "refused",
]

ASSIGNMENTS = "Microsoft.Authorization/roleAssignments"
DEFINITIONS = "Microsoft.Authorization/roleDefinitions"


def grants(permission: Body, action: str, *, data: bool = False) -> bool:
    """Whether one block of a role allows ``action``, with ``data`` on the data inside a resource.

    >>> grants({"actions": ["*"], "notActions": ["A.B/*/Write"]}, "a.c/disks/write")
    True
    """
    given, taken = ("dataActions", "notDataActions") if data else ("actions", "notActions")
    return _any(permission.get(given) or (), action) and not _any(permission.get(taken) or (), action)


def _any(patterns: Iterable[str], action: str) -> bool:
    return any(re.fullmatch(".*".join(map(re.escape, p.split("*"))), action, re.IGNORECASE) for p in patterns)


def _role(
    name: str, actions: Sequence[str], *, excluded: Sequence[str] = (), data: Sequence[str] = ()
) -> Body:
    permission = {"actions": actions, "notActions": excluded, "dataActions": data, "notDataActions": ()}
    shown = {name: list(patterns) for name, patterns in permission.items()}
    return {
        "roleName": name,
        "type": "BuiltInRole",
        "description": "",
        "assignableScopes": ["/"],
        "permissions": [shown],
    }


_REGISTRIES = "Microsoft.ContainerRegistry/registries"
_STORAGE = "Microsoft.Storage/storageAccounts/blobServices"
_CONTAINERS = f"{_STORAGE}/containers"
_DELEGATE = f"{_STORAGE}/generateUserDelegationKey/action"
_CHANGES = ("delete", "read", "write", "move/action", "add/action")
BUILT_IN: Mapping[str, Body] = {
    "8e3af657-a8ff-443c-a75c-2fe8c4bcb635": _role("Owner", ["*"]),
    "b24988ac-6180-42a0-ab88-20f7382dd24c": _role(
        "Contributor",
        ["*"],
        excluded=[
            "Microsoft.Authorization/*/Delete",
            "Microsoft.Authorization/*/Write",
            "Microsoft.Authorization/elevateAccess/Action",
            "Microsoft.Blueprint/blueprintAssignments/write",
            "Microsoft.Blueprint/blueprintAssignments/delete",
            "Microsoft.Compute/galleries/share/action",
        ],
    ),
    "acdd72a7-3385-48ef-bd42-f606fba81ae7": _role("Reader", ["*/read"]),
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": _role(
        "Storage Blob Data Contributor",
        [*(f"{_CONTAINERS}/{what}" for what in ("delete", "read", "write")), _DELEGATE],
        data=[f"{_CONTAINERS}/blobs/{what}" for what in _CHANGES],
    ),
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": _role(
        "Storage Blob Data Reader", [f"{_CONTAINERS}/read", _DELEGATE], data=[f"{_CONTAINERS}/blobs/read"]
    ),
    "3913510d-42f4-4e42-8a64-420c390055eb": _role(
        "Monitoring Metrics Publisher",
        [
            "Microsoft.Insights/Register/Action",
            "Microsoft.Support/*",
            "Microsoft.Resources/subscriptions/resourceGroups/read",
        ],
        data=["Microsoft.Insights/Metrics/Write", "Microsoft.Insights/Telemetry/Write"],
    ),
    "7f951dda-4ed3-4680-a7ca-43fe172d538d": _role("AcrPull", [f"{_REGISTRIES}/pull/read"]),
    "b93aa761-3e63-49ed-ac28-beffa264f7ac": _role(
        "Container Registry Repository Reader",
        [],
        data=[f"{_REGISTRIES}/repositories/{what}/read" for what in ("content", "metadata")],
    ),
}
"""Azure's own roles by id (learn.microsoft.com role-based-access-control/built-in-roles), as far as a
training cluster meets them; any other id is a role that does not exist here.
"""


def built_in(subscription: str, role_id: str) -> Body:
    """Return one of Azure's own roles as a GET shows it."""
    rid = f"/subscriptions/{subscription}/providers/{DEFINITIONS}/{role_id}"
    return {"id": rid, "name": role_id, "type": DEFINITIONS, "properties": BUILT_IN[role_id]}


def definition(subscription: Subscription, role_id: str) -> Body | None:
    """Return the properties of the role of this id, or of an id's last part: a built-in or a custom one."""
    guid = role_id.rpartition("/")[2].lower()
    made = (r for r in subscription.of_type(DEFINITIONS) if r.state != "Deleting")
    return BUILT_IN.get(guid) or next((r.properties for r in made if r.id.name.lower() == guid), None)


def allows(
    subscription: Subscription, principal: str, action: str, scope: ResourceId, data: bool = False
) -> bool:
    """Whether ``principal`` (an object id) may do ``action`` at ``scope``; with ``data`` a data action.

    What counts are the assignments there and on everything around it.
    """
    for record in subscription.of_type(ASSIGNMENTS):
        own = str(record.properties.get("principalId", "")).lower() == principal.lower()
        if own and record.state != "Deleting" and record.id.base.contains(scope):
            role = definition(subscription, str(record.properties.get("roleDefinitionId"))) or {}
            if any(grants(block, action, data=data) for block in role.get("permissions") or ()):
                return True
    return False


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
