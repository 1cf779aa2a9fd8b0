"""Managed identities, and the resources that they are assigned to."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.references import at
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.services import Services
from rehearsal.imds.tokens import TENANT_ID

__all__ = ["ENTRIES", "AssignedIdentities", "assigned", "client_id", "of_principal"]

_SPACE = uuid.UUID("5c2b1d8e-8a0e-4f0c-9d0b-2a9a4a2f6b11")
_IDENTITIES = ResourceType(
    "Microsoft.ManagedIdentity/userAssignedIdentities",
    "msi.Identity",
    ("resourceName",),
    pulumi_type="azure-native:managedidentity:UserAssignedIdentity",
    patch_model="msi.IdentityUpdate",
    sync=True,
)


def client_id(record: Record) -> str:
    """Return the application id of an identity; its principal id is the record's own GUID."""
    return str(uuid.uuid5(_SPACE, record.guid))


def of_principal(subscription: Subscription, principal: str) -> Record | None:
    """Return the identity with this principal id."""
    wanted = principal.lower()
    return next((r for r in subscription.of_type(_IDENTITIES.type) if r.guid.lower() == wanted), None)


def assigned(body: Body) -> Iterator[ResourceId]:
    """Yield the user-assigned identities of a resource."""
    for text in at(body, "identity", "userAssignedIdentities") or {}:
        rid = ResourceId.parse(text)
        if rid is not None:
            yield rid


class AssignedIdentities(Hooks[Services]):
    """Behaviour that all types share: a resource of any type may have identities."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse an identity that does not exist."""
        for wanted in assigned(body):
            if not self.services.subscription.exists(wanted):
                raise ArmError(
                    400,
                    "FailedIdentityOperation",
                    f"Identity operation for resource '{rid}' failed with error 'Failed to perform resource "
                    "identity operation. Status: 'BadRequest'. Response: "
                    f"Resource '{wanted}' was not found.'.",
                )
        return body

    def show(self, record: Record, shown: Body) -> None:
        """Add the ids of each identity."""
        given = at(shown, "identity", "userAssignedIdentities") or {}
        for text in given:
            found = self.services.subscription.resources.get(text.lower())
            if found is not None:
                given[text] = {"principalId": found.guid, "clientId": client_id(found)}


class _IdentityHooks(Hooks[Services]):
    """The resource is the identity itself."""

    def show(self, record: Record, shown: Body) -> None:
        """Replace the properties by the ids of the identity."""
        shown["properties"] = {
            "tenantId": TENANT_ID,
            "principalId": record.guid,
            "clientId": client_id(record),
        }


ENTRIES = ((_IDENTITIES, _IdentityHooks),)
