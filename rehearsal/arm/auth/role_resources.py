"""Role definitions, Azure's own and those that a subscription makes, and role assignments, at any scope."""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.arm.auth import roles
from rehearsal.arm.auth.identities import of_principal
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.services import Services
from rehearsal.imds.tokens import TENANT_ID

__all__ = ["ENTRIES"]

_DEFINITIONS = ResourceType(
    roles.DEFINITIONS,
    "authorization.RoleDefinition",
    ("roleDefinitionId",),
    shows_state=False,
    tracked=False,
    extends=True,
    sync=True,
    version="2022-05-01-preview",
)


class _RoleDefinitionHooks(Hooks[Services]):
    """Custom roles are stored, built-in ones are constants."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse an incomplete definition, and a name that another one has."""
        roles.check_guid("role definition", rid, "InvalidRoleDefinitionId")
        wanted = body["properties"]
        if not wanted.get("roleName") or not wanted.get("permissions") or not wanted.get("assignableScopes"):
            problem = "The role definition needs roleName, permissions and assignableScopes."
            raise ArmError(400, "InvalidRoleDefinition", problem)
        name = wanted["roleName"].lower()
        for other in self.services.subscription.of_type(roles.DEFINITIONS):
            if other.id.name.lower() != rid.name.lower() and other.properties["roleName"].lower() == name:
                problem = (
                    f"A custom role with the same name already exists in this directory: {other.id.name}."
                )
                raise ArmError(409, "RoleDefinitionWithSameNameExists", problem)
        return {**body, "properties": {"type": "CustomRole", **wanted}}

    def release(self, rid: ResourceId) -> None:
        """Refuse to delete a role that is assigned."""
        for record in self.services.subscription.of_type(roles.ASSIGNMENTS):
            if record.properties["roleDefinitionId"].lower().endswith(f"/{rid.name.lower()}"):
                problem = "There are existing role assignments referencing role."
                raise ArmError(400, "RoleDefinitionHasAssignments", problem)

    def built_in(self) -> Mapping[str, Body]:
        """Return Azure's own roles."""
        return {role: roles.built_in(self.services.subscription.id, role) for role in roles.BUILT_IN}


def _not_permitted(_path: str) -> ArmError:
    problem = "Tenant ID, application ID, principal ID, and scope are not allowed to be updated."
    return ArmError(400, "RoleAssignmentUpdateNotPermitted", problem)


_ASSIGNMENTS = ResourceType(
    roles.ASSIGNMENTS,
    "authorization.RoleAssignmentCreateParameters",
    ("roleAssignmentName",),
    shown_model="authorization.RoleAssignment",
    immutable=("principalId", "roleDefinitionId", "principalType"),
    immutable_error=_not_permitted,
    shows_state=False,
    tracked=False,
    extends=True,
    sync=True,
)


class _RoleAssignmentHooks(Hooks[Services]):
    """Assignments are read by every request of an identity."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse an unknown role or principal, and an assignment that exists already."""
        roles.check_guid("role assignment", rid, "InvalidRoleAssignmentId")
        wanted = body["properties"]
        role, principal = wanted["roleDefinitionId"].rpartition("/")[2], wanted["principalId"]
        if roles.definition(self.services.subscription, role) is None:
            problem = f"The specified role definition with ID '{role}' does not exist."
            raise ArmError(400, "RoleDefinitionDoesNotExist", problem)
        subscription = self.services.subscription
        service = principal.lower() in subscription.service_principals
        service = service or of_principal(subscription, principal) is not None
        if not service and principal.lower() not in subscription.people:
            raise ArmError(
                400,
                "PrincipalNotFound",
                f"Principal {principal.replace('-', '')} does not exist in the directory {TENANT_ID}. Check "
                "that you have the correct principal ID. If you are creating this principal and then "
                "immediately assigning a role, this error might be related to a replication delay. In this "
                "case, set the role assignment principalType property to a value, such as ServicePrincipal, "
                "User, or Group. See https://aka.ms/docs-principaltype",
            )
        actual = "ServicePrincipal" if service else "User"
        given = wanted.get("principalType") or actual
        if given != actual:
            raise ArmError(
                400,
                "UnmatchedPrincipalType",
                f"The PrincipalId '{principal.replace('-', '')}' has type '{actual}' , which is different "
                f"from specified PrinciaplType '{given}'.",
            )
        for other in self.services.subscription.of_type(roles.ASSIGNMENTS):
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

    def show(self, record: Record, shown: Body) -> None:
        at = record.created
        shown["properties"].update(scope=str(record.id.base), createdOn=at, updatedOn=at)


ENTRIES = ((_DEFINITIONS, _RoleDefinitionHooks), (_ASSIGNMENTS, _RoleAssignmentHooks))
