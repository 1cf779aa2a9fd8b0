"""Managed identities, role definitions and role assignments: what Azure checks and adds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rehearsal.arm.auth import roles
from rehearsal.arm.auth.identity_types import ASSIGNMENTS, DEFINITIONS, IDENTITIES
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.imds.tokens import TENANT_ID

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["HOOKS", "assigned", "check_assigned", "client_id", "of_principal", "show_assigned"]

_SPACE = uuid.UUID("5c2b1d8e-8a0e-4f0c-9d0b-2a9a4a2f6b11")


def client_id(record: Record) -> str:
    """The application id of an identity; its principal id is the record's own id."""
    return str(uuid.uuid5(_SPACE, record.guid))


def of_principal(subscription: Subscription, principal: str) -> Record | None:
    """The identity with this principal id."""
    wanted = principal.lower()
    return next((r for r in subscription.of_type(IDENTITIES) if r.guid.lower() == wanted), None)


def assigned(body: dict[str, Any]) -> Iterator[ResourceId]:
    """The identities that a VM or scale set is given."""
    for text in (body.get("identity") or {}).get("userAssignedIdentities") or {}:
        rid = ResourceId.parse(text)
        if rid is not None:
            yield rid


def check_assigned(subscription: Subscription, rid: ResourceId, body: dict[str, Any]) -> None:
    """Raises when an identity that ``rid`` is given does not exist."""
    for wanted in assigned(body):
        if not subscription.exists(wanted):
            raise ArmError(
                400,
                "FailedIdentityOperation",
                f"Identity operation for resource '{rid}' failed with error 'Failed to perform resource "
                f"identity operation. Status: 'BadRequest'. Response: Resource '{wanted}' was not found.'.",
            )


def show_assigned(subscription: Subscription, shown: dict[str, Any]) -> None:
    """Adds to each identity that a resource is given whose it is."""
    given = (shown.get("identity") or {}).get("userAssignedIdentities") or {}
    for text in given:
        record = subscription.resources.get(text.lower())
        if record is not None:
            given[text] = {"principalId": record.guid, "clientId": client_id(record)}


def _show_identity(_: Subscription, record: Record, shown: dict[str, Any]) -> None:
    shown["properties"] = {"tenantId": TENANT_ID, "principalId": record.guid, "clientId": client_id(record)}


# -- roles ------------------------------------------------------------------------------------------------


def _check_guid(what: str, rid: ResourceId, code: str) -> None:
    try:
        uuid.UUID(rid.name)
    except ValueError:
        problem = f"The {what} ID '{rid.name}' is not valid. The {what} ID must be a GUID."
        raise ArmError(400, code, problem) from None


def _accept_assignment(
    subscription: Subscription, rid: ResourceId, body: dict[str, Any], _old: dict[str, Any] | None
) -> dict[str, Any]:
    _check_guid("role assignment", rid, "InvalidRoleAssignmentId")
    wanted = body["properties"]
    role, principal = wanted["roleDefinitionId"].rpartition("/")[2], wanted["principalId"]
    if roles.definition(subscription, role) is None:
        problem = f"The specified role definition with ID '{role}' does not exist."
        raise ArmError(400, "RoleDefinitionDoesNotExist", problem)
    identity = of_principal(subscription, principal)
    if identity is None and principal.lower() not in subscription.people:
        raise ArmError(
            400,
            "PrincipalNotFound",
            f"Principal {principal.replace('-', '')} does not exist in the directory {TENANT_ID}. Check that "
            "you have the correct principal ID. If you are creating this principal and then immediately "
            "assigning a role, this error might be related to a replication delay. In this case, set the "
            "role assignment principalType property to a value, such as ServicePrincipal, User, or Group. "
            "See https://aka.ms/docs-principaltype",
        )
    actual = "User" if identity is None else "ServicePrincipal"
    said = wanted.get("principalType") or actual
    if said != actual:
        raise ArmError(
            400,
            "UnmatchedPrincipalType",
            f"The PrincipalId '{principal.replace('-', '')}' has type '{actual}' , which is different from "
            f"specified PrinciaplType '{said}'.",
        )
    for other in subscription.of_type(ASSIGNMENTS):
        same = (
            other.id.key != rid.key
            and other.id.base.key == rid.base.key
            and other.properties["principalId"].lower() == principal.lower()
            and other.properties["roleDefinitionId"].lower().endswith(f"/{role.lower()}")
        )
        if same:
            known = f"The ID of the existing role assignment is {other.id.name.replace('-', '')}."
            problem = f"The role assignment already exists. {known}"
            raise ArmError(409, "RoleAssignmentExists", problem)
    return {**body, "properties": {**wanted, "principalType": actual}}


def _show_assignment(_: Subscription, record: Record, shown: dict[str, Any]) -> None:
    at = record.created
    shown["properties"].update(scope=str(record.id.base), createdOn=at, updatedOn=at)
    del shown["properties"]["provisioningState"]


def _accept_definition(
    subscription: Subscription, rid: ResourceId, body: dict[str, Any], _old: dict[str, Any] | None
) -> dict[str, Any]:
    _check_guid("role definition", rid, "InvalidRoleDefinitionId")
    wanted = body.get("properties") or {}
    if not wanted.get("roleName") or not wanted.get("permissions") or not wanted.get("assignableScopes"):
        problem = "The role definition needs roleName, permissions and assignableScopes."
        raise ArmError(400, "InvalidRoleDefinition", problem)
    name = wanted["roleName"].lower()
    for other in subscription.of_type(DEFINITIONS):
        if other.id.name.lower() != rid.name.lower() and other.properties["roleName"].lower() == name:
            problem = f"A custom role with the same name already exists in this directory: {other.id.name}."
            raise ArmError(409, "RoleDefinitionWithSameNameExists", problem)
    return {**body, "properties": {"type": "CustomRole", **wanted}}


def _release_definition(subscription: Subscription, rid: ResourceId) -> None:
    for record in subscription.of_type(ASSIGNMENTS):
        if record.properties["roleDefinitionId"].lower().endswith(f"/{rid.name.lower()}"):
            problem = "There are existing role assignments referencing role."
            raise ArmError(400, "RoleDefinitionHasAssignments", problem)


def _show_definition(_: Subscription, _r: Record, shown: dict[str, Any]) -> None:
    del shown["properties"]["provisioningState"]


HOOKS = {
    IDENTITIES: Hooks(show=_show_identity),
    ASSIGNMENTS: Hooks(accept=_accept_assignment, show=_show_assignment),
    DEFINITIONS: Hooks(accept=_accept_definition, release=_release_definition, show=_show_definition),
}
