"""Role definitions: Azure's own, and those that a subscription makes."""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.arm.auth import roles
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.services import Services

__all__ = ["ENTRIES", "RoleDefinitionHooks"]

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


class RoleDefinitionHooks(Hooks[Services]):
    """Custom roles are stored, built-in ones are constants."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse an incomplete definition, and a name that another one has."""
        roles.check_guid("role definition", rid, "InvalidRoleDefinitionId")
        wanted = body.get("properties") or {}
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


ENTRIES = ((_DEFINITIONS, RoleDefinitionHooks),)
