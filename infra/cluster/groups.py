"""The stack's resource groups, with the names, tags and options of what is made in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pulumi
from pulumi_azure_native.resources.resource_group import ResourceGroup

from infra.config.cluster_config import ClusterConfig
from infra.naming import STACK_TAG, cluster_name, data_group_name, own_uuid, storage_name

__all__ = ["Place", "build_data_place", "build_place"]


@dataclass(frozen=True, slots=True)
class Place:
    """One resource group of a stack, and what all resources in it share."""

    stack: str
    name: str
    """Prefix of every name."""
    group: ResourceGroup
    location: str
    tags: Mapping[str, str]
    opts: pulumi.ResourceOptions

    @property
    def common(self) -> dict[str, Any]:
        """The arguments that all resources in the group take."""
        return {
            "resource_group_name": self.group.name,
            "location": self.location,
            "tags": self.tags,
            "opts": self.opts,
        }

    @property
    def subscription(self) -> pulumi.Output[str]:
        """Id of the subscription, taken from the group's id: the program is not given it."""
        return self.group.id.apply(lambda group: group.split("/")[2])

    def uuid(self, purpose: str) -> pulumi.Output[str]:
        """Return the name of a resource that Azure names by UUID."""
        return self.subscription.apply(lambda own: own_uuid(self.stack, own, purpose))

    def storage_name(self, purpose: str) -> pulumi.Output[str]:
        """Return the name of a storage account."""
        return self.subscription.apply(lambda own: storage_name(self.stack, own, purpose))


def build_place(stack: str, config: ClusterConfig, child: pulumi.ResourceOptions) -> Place:
    """Make the resource group of the nodes and their network."""
    tags = {**config.tags, STACK_TAG: stack}
    group = ResourceGroup(
        "group", resource_group_name=cluster_name(stack), location=config.location, tags=tags, opts=child
    )
    return Place(stack, cluster_name(stack), group, config.location, tags, child)


def build_data_place(place: Place, *, retain: bool) -> Place:
    """Make the resource group of what the stack stores.

    With ``retain`` Pulumi keeps the group and its resources when the stack is destroyed. Another stack can
    then use a storage account in it.
    """
    opts = place.opts
    if retain:
        opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(retain_on_delete=True))
    group = ResourceGroup(
        "data-group",
        resource_group_name=data_group_name(place.stack),
        location=place.location,
        tags=place.tags,
        opts=opts,
    )
    if retain:
        pulumi.log.info(
            f"ranklift:retainData: {data_group_name(place.stack)} and what is in it stay, and keep costing, "
            "when this stack is destroyed",
            resource=group,
        )
    return replace(place, group=group, opts=opts)
