"""Identities, role definitions and role assignments."""

from __future__ import annotations

from rehearsal.arm.core.resource_type import Kind

__all__ = ["ASSIGNMENTS", "DEFINITIONS", "IDENTITIES", "IDENTITY"]

IDENTITIES = "Microsoft.ManagedIdentity/userAssignedIdentities"
ASSIGNMENTS = "Microsoft.Authorization/roleAssignments"
DEFINITIONS = "Microsoft.Authorization/roleDefinitions"

IDENTITY = (
    Kind(
        IDENTITIES,
        "msi.Identity",
        "azure-native:managedidentity:UserAssignedIdentity",
        ("resourceName",),
        patch_model="msi.IdentityUpdate",
        sync=True,
    ),
    Kind(
        ASSIGNMENTS,
        "authorization.RoleAssignmentCreateParameters",
        "azure-native:authorization:RoleAssignment",
        ("roleAssignmentName",),
        shown_model="authorization.RoleAssignment",
        # Azure answers a change of these with RoleAssignmentUpdateNotPermitted.
        immutable=("principalId", "roleDefinitionId", "principalType"),
        tracked=False,
        extends=True,
        sync=True,
    ),
    Kind(
        DEFINITIONS,
        "authorization.RoleDefinition",
        "azure-native:authorization:RoleDefinition",
        ("roleDefinitionId",),
        tracked=False,
        extends=True,
        sync=True,
        version="2022-05-01-preview",
    ),
)
