"""Where resources go, what they are called and tagged, and whose children they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pulumi
from pulumi_azure_native.resources.resource_group import ResourceGroup

from infra.config.cluster_config import ClusterConfig
from infra.naming import STACK_TAG, cluster_name, data_group_name, own_uuid, storage_name

__all__ = ["Place", "build_data_place", "build_place"]


@dataclass(frozen=True, slots=True)
class Place:
    """One resource group of a stack, and what everything in it has in common."""

    stack: str
    name: str
    """What every name begins with."""
    group: ResourceGroup
    location: str
    tags: Mapping[str, str]
    opts: pulumi.ResourceOptions

    @property
    def subscription(self) -> pulumi.Output[str]:
        """The id of the subscription: the program is not told it, the group's id has it."""
        return self.group.id.apply(lambda group: group.split("/")[2])

    def uuid(self, purpose: str) -> pulumi.Output[str]:
        """For what Azure names by UUIDs."""
        return self.subscription.apply(lambda own: own_uuid(self.stack, own, purpose))

    def storage_name(self, purpose: str) -> pulumi.Output[str]:
        """For a storage account."""
        return self.subscription.apply(lambda own: storage_name(self.stack, own, purpose))


def build_place(stack: str, config: ClusterConfig, child: pulumi.ResourceOptions) -> Place:
    """The resource group of the nodes and their network."""
    tags = {**config.tags, STACK_TAG: stack}
    group = ResourceGroup(
        "group",
        resource_group_name=cluster_name(stack),
        location=config.location,
        tags=tags,
        opts=child,
    )
    return Place(stack, cluster_name(stack), group, config.location, tags, child)


def build_data_place(place: Place, *, retain: bool) -> Place:
    """The resource group of what the stack stores.

    With ``retain`` neither it nor what is made in it is deleted: Pulumi forgets them when the stack is
    destroyed. A storage account in it can then be given to another stack.
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
            f"ranklift:retainData: {data_group_name(place.stack)} and what is in it stay, and cost, "
            "when this stack is destroyed",
            resource=group,
        )
    return replace(place, group=group, opts=opts)
