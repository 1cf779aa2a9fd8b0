"""A training cluster as one Pulumi component."""

from __future__ import annotations

import pulumi
from pulumi_azure_native.resources.resource_group import ResourceGroup

from images.cloud_init import NodeSetup, cloud_config
from infra.config import ClusterConfig
from infra.keys import KeyPair, secret
from infra.naming import BACKEND_POOL, STACK_TAG, cluster_name
from infra.network import SSH, Place, build_frontend, build_subnet
from infra.scale_set import NodeAccess, build_scale_set

__all__ = ["TrainingCluster"]


class TrainingCluster(pulumi.ComponentResource):
    """Resource group, network, keys and nodes of one stack.

    ``outputs`` is what the program exports: all that the commands need to reach the nodes, the user's private
    key as a secret.
    """

    outputs: dict[str, pulumi.Input[object]]

    def __init__(self, stack: str, config: ClusterConfig, opts: pulumi.ResourceOptions | None = None) -> None:
        """Registers the cluster of ``stack`` with everything in it."""
        super().__init__("ranklift:infra:TrainingCluster", stack, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        tags = {**config.tags, STACK_TAG: stack}
        group = ResourceGroup(
            "group",
            resource_group_name=cluster_name(stack),
            location=config.location,
            tags=tags,
            opts=child,
        )
        place = Place(cluster_name(stack), group, config.location, tags, child)
        user, cluster, host = (KeyPair(f"{whose}-key", child) for whose in ("user", "cluster", "host"))
        frontend = build_frontend(place) if config.access == "public" else None
        nodes = build_scale_set(
            place,
            config,
            build_subnet(place, config),
            frontend.pool_id if frontend else None,
            NodeAccess(_cloud_config(config, cluster, host), (user.public_key, cluster.public_key)),
        )
        self.outputs = {
            "stack": stack,
            "scaleSetId": nodes.id,
            "loadBalancerId": frontend.load_balancer_id if frontend else None,
            "backendPool": BACKEND_POOL if frontend else None,
            "publicIp": frontend.address if frontend else None,
            "sshPort": SSH,
            "vmSize": config.size.name,
            "location": config.location,
            "nodeCount": config.node_count,
            "slots": config.slots,
            "adminUser": config.admin_user,
            "access": config.access,
            "hostPublicKey": host.public_key,
            "userPrivateKey": secret(user.private_key),
            "clusterPublicKey": cluster.public_key,
        }
        self.register_outputs(self.outputs)


def _cloud_config(config: ClusterConfig, cluster: KeyPair, host: KeyPair) -> pulumi.Output[str]:
    def render(keys: tuple[str, str, str]) -> str:
        cluster_private, host_private, host_public = keys
        return cloud_config(
            NodeSetup(
                user=config.admin_user,
                computer_name_prefix=config.computer_name_prefix,
                subnet_prefix=config.subnet_prefix,
                host_public_key=host_public,
                host_private_key=host_private,
                cluster_private_key=cluster_private,
            )
        )

    keys = pulumi.Output.all(cluster.private_key, host.private_key, host.public_key)
    return keys.apply(lambda given: render((given[0], given[1], given[2])))
