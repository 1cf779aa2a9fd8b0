"""The nodes' identity at Azure, and its few rights.

Made only if the configuration needs a right, so that making plain clusters does not take a role that can
assign roles (``Owner`` or ``User Access Administrator``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native.authorization._inputs import PermissionArgs
from pulumi_azure_native.authorization.role_assignment import RoleAssignment
from pulumi_azure_native.authorization.role_definition import RoleDefinition
from pulumi_azure_native.compute.virtual_machine_scale_set import VirtualMachineScaleSet
from pulumi_azure_native.managedidentity.user_assigned_identity import UserAssignedIdentity

from infra.cluster.groups import Place
from infra.config.cluster_config import ClusterConfig
from infra.naming import AGENT_TAG, CONTAINER_REGISTRY, CONTAINER_REPOSITORIES, own_uuid, right_on

__all__ = [
    "BLOB_CONTRIBUTOR",
    "Identity",
    "allow",
    "allow_operator",
    "allow_pull",
    "build_identity",
    "build_watcher_role",
    "built_in_role",
    "watcher_actions",
]

BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
"""Azure's built-in role Storage Blob Data Contributor (learn.microsoft.com built-in-roles/storage)."""

ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
"""Azure's built-in role AcrPull (learn.microsoft.com built-in-roles/containers)."""

REPOSITORY_READER = "b93aa761-3e63-49ed-ac28-beffa264f7ac"
"""Azure's built-in role Container Registry Repository Reader. Registries with permissions per repository obey
it and not AcrPull (learn.microsoft.com container-registry-rbac-abac-repository-permissions)."""

_SET = "Microsoft.Compute/virtualMachineScaleSets"


@dataclass(frozen=True, slots=True)
class Identity:
    """The nodes' user-assigned identity."""

    id: pulumi.Output[str]
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]


def build_identity(place: Place) -> Identity:
    """Make an identity without rights."""
    identity = UserAssignedIdentity("identity", resource_name_=f"{place.name}-nodes", **place.common)
    return Identity(identity.id, identity.client_id, identity.principal_id)


def watcher_actions(config: ClusterConfig, tags: Mapping[str, str] | None) -> list[str]:
    """Return the rights of the nodes' agent on their scale set: read it and, if configured, end it.

    ``tags`` are the scale set's. ``delete/action`` (learn.microsoft.com rest/api/compute/
    virtual-machine-scale-sets/delete-instances) removes VMs by their ids, and can neither add any nor change
    what others boot. Without :data:`~infra.naming.AGENT_TAG` the nodes' agents write the capacity instead,
    for which Azure also asks for the right to join the subnet (aad-pod-identity pull request 550).
    """
    actions = [f"{_SET}/read", f"{_SET}/virtualMachines/read"]
    if config.idle_stop_minutes is not None:
        actions.append(f"{_SET}/delete/action" if AGENT_TAG in (tags or {}) else f"{_SET}/write")
    if config.ttl_hours is not None:
        actions.append(f"{_SET}/delete")
    return actions


def build_watcher_role(
    place: Place, config: ClusterConfig, identity: Identity, nodes: VirtualMachineScaleSet
) -> None:
    """Make a role with :func:`watcher_actions` and assign it to the nodes on their resource group.

    It has one scale set. On the set itself the assignment would go with it, and azure-native fails to refresh
    an assignment whose scope is gone (pulumi/pulumi-azure-native#4528 and #4802): the next ``up`` would fail.
    """
    actions = nodes.tags.apply(lambda tags: watcher_actions(config, tags))
    role = RoleDefinition(
        "watcher-role",
        role_definition_id=place.uuid("watcher-role"),
        role_name=place.subscription.apply(
            lambda own: f"{place.name}-watcher-{own_uuid(place.stack, own, '')[:8]}"
        ),
        role_type="CustomRole",
        description="Lets the nodes of a cluster end it: delete nodes of their own set, or the set.",
        permissions=[PermissionArgs(actions=actions, not_actions=[])],
        assignable_scopes=[place.group.id],
        scope=place.group.id,
        opts=place.opts,
    )
    # Azure takes a name of an assignment in one scope only; earlier versions had it on the scale set.
    allow(place, identity, "watcher", role.id, place.group.id, name=place.uuid("watcher-right-on-group"))


def built_in_role(place: Place, role: str) -> pulumi.Output[str]:
    """Return the id of one of Azure's own roles in the stack's subscription."""
    return place.subscription.apply(
        lambda own: f"/subscriptions/{own}/providers/Microsoft.Authorization/roleDefinitions/{role}"
    )


def allow_pull(place: Place, identity: Identity, registry: str) -> list[RoleAssignment]:
    """Let the nodes pull images from an existing registry, which is not changed otherwise.

    Both roles are assigned: the registry's mode decides which one counts, and its owner may change it.
    """
    roles = {CONTAINER_REGISTRY: ACR_PULL, CONTAINER_REPOSITORIES: REPOSITORY_READER}
    scope = pulumi.Output.from_input(registry)
    return [
        allow(place, identity, purpose, built_in_role(place, role), scope) for purpose, role in roles.items()
    ]


def allow(
    place: Place,
    identity: Identity,
    purpose: str,
    role_id: pulumi.Input[str],
    scope: pulumi.Output[str],
    name: pulumi.Output[str] | None = None,
) -> RoleAssignment:
    """Assign a role to the identity on ``scope`` and all that is in it."""
    return RoleAssignment(
        right_on(purpose),
        role_assignment_name=name or place.uuid(right_on(purpose)),
        principal_id=identity.principal_id,
        # Without it Azure looks the identity up in its directory, which may not have it yet.
        principal_type="ServicePrincipal",
        role_definition_id=role_id,
        scope=scope,
        opts=place.opts,
    )


def allow_operator(
    place: Place, purpose: str, operator: str, role_id: pulumi.Input[str], scope: pulumi.Output[str]
) -> RoleAssignment:
    """Assign a role to a person of the directory."""
    name = right_on(f"{purpose}-{operator}")
    return RoleAssignment(
        name,
        role_assignment_name=place.uuid(name),
        principal_id=operator,
        principal_type="User",
        role_definition_id=role_id,
        scope=scope,
        opts=place.opts,
    )
