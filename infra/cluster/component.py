"""A training cluster as one Pulumi component."""

from __future__ import annotations

import pulumi

from images.cloud_init import MetricsService, NodeSetup, cloud_config
from infra.cluster.groups import build_data_place, build_place
from infra.cluster.keys import KeyPair, secret
from infra.cluster.network import SSH, build_frontend, build_network
from infra.cluster.nodes import NodeAccess, build_scale_set
from infra.cluster.shared.base import SharedSite
from infra.cluster.shared.registry import KINDS
from infra.cluster.teardown_report import TeardownReport
from infra.config.bare_image import boot_steps
from infra.config.cluster_config import ClusterConfig
from infra.config.replacing import MADE_BY, replacing_settings
from infra.naming import BACKEND_POOL, is_own_data

__all__ = ["TrainingCluster"]


class TrainingCluster(pulumi.ComponentResource):
    """Resource groups, network, keys and nodes of one stack, and what it stores outside the nodes.

    ``outputs`` is what the program exports: all that the commands need to reach the nodes, the user's private
    key as a secret. Azure services that the configuration does not use are not imported: each takes 0.1 s and
    more.
    """

    outputs: dict[str, pulumi.Input[object]]

    def __init__(
        self,
        stack: str,
        config: ClusterConfig,
        opts: pulumi.ResourceOptions | None = None,
        *,
        changed: frozenset[str] = frozenset(),
    ) -> None:
        """Register the cluster of ``stack`` with everything in it.

        ``changed`` are the settings that replace nodes in this update. Without any, later nodes boot by the
        document of those that the stack has; else all are made, and boot by the one of ``config``.
        """
        own = pulumi.ResourceOptions(transformations=[_without_former_types])
        super().__init__(
            "ranklift:infra:TrainingCluster", stack, None, pulumi.ResourceOptions.merge(opts, own)
        )
        keeps = config.retain_data or is_own_data(stack, config.storage_account_id)
        last = TeardownReport(stack, retain=keeps, opts=pulumi.ResourceOptions(parent=self))
        place = build_place(stack, config, pulumi.ResourceOptions(parent=self, depends_on=[last]))
        user, cluster, host = (KeyPair(f"{whose}-key", place.opts) for whose in ("user", "cluster", "host"))
        authorized_keys = (user.public_key, cluster.public_key)
        frontend = build_frontend(place) if config.access == "public" else None
        network = build_network(place, config)
        more: dict[str, pulumi.Input[object]] = {"resourceGroup": place.group.name}
        if network.dns_servers is not None:
            more["dnsServers"] = network.dns_servers
        used: list[pulumi.Resource] = []
        data = identity = folder = None
        if config.owns_data:
            data = build_data_place(place, retain=config.retain_data)
            more["dataGroup"] = data.group.name
        if config.needs_identity:
            from infra.cluster.identity import build_identity

            identity = build_identity(place)
            more["identityClientId"] = identity.client_id
        if config.storage != "none" and identity is not None:
            from infra.cluster.blob import build_storage

            blobs = build_storage(place, data, config, network, identity)
            more |= {"storageAccount": blobs.name, "blobEndpoint": blobs.endpoint}
            used += blobs.ready
        if config.container_registry is not None and identity is not None:
            from infra.cluster.identity import allow_pull

            used += allow_pull(place, identity, config.container_registry)
        if config.shared is not None:
            site = SharedSite(place, data, config, network, user.public_key, changed)
            shared = KINDS[config.shared.kind].build(site)
            more["nfsMount"] = folder = shared.source
            used += shared.ready
        monitor_url = None
        if config.monitor and identity is not None:
            from infra.cluster.monitor import build_monitor

            monitor = build_monitor(place, identity)
            monitor_url = monitor.rule_url
            more |= {"monitorWorkspaceId": monitor.workspace_id, "monitorQueryUrl": monitor.query_endpoint}
        nodes = build_scale_set(
            place,
            config,
            network,
            frontend.pool_id if frontend else None,
            NodeAccess(
                _cloud_config(stack, config, (user, cluster, host), folder), authorized_keys, tuple(used)
            ),
            identity,
            monitor_url=monitor_url,
            keeps_document=not changed,
        )
        if identity is not None and (config.ttl_hours is not None or config.idle_stop_minutes is not None):
            from infra.cluster.identity import build_watcher_role

            build_watcher_role(place, config, identity, nodes)
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
            MADE_BY: replacing_settings(config),
            **more,
        }
        self.register_outputs(self.outputs)


def _without_former_types(
    args: pulumi.ResourceTransformationArgs,
) -> pulumi.ResourceTransformationResult | None:
    """Drop the aliases that azure-native gives its resources for stacks older than this project.

    A resource has some thirty, one for every API version so far, and computing them takes half of the
    program's time (1.2 s of 2.6 s of a processor, measured for the plain cluster).
    """
    if not args.type_.startswith("azure-native:"):
        return None
    args.opts.aliases = None
    return pulumi.ResourceTransformationResult(args.props, args.opts)


def _cloud_config(
    stack: str,
    config: ClusterConfig,
    pairs: tuple[KeyPair, KeyPair, KeyPair],
    folder: pulumi.Output[str] | None,
) -> pulumi.Output[str]:
    user, cluster, host = pairs
    port = config.metrics_port
    metrics = None if port is None else MetricsService(port, stack, config.size.name, config.location)

    def render(given: tuple[str, str, str, str, str | None]) -> str:
        user_public, cluster_private, host_private, host_public, source = given
        kind = KINDS[config.shared.kind] if config.shared else None
        return cloud_config(
            NodeSetup(
                user=config.admin_user,
                computer_name_prefix=config.computer_name_prefix,
                subnet_prefix=config.subnet_prefix,
                host_public_key=host_public,
                host_private_key=host_private,
                user_public_key=user_public,
                cluster_private_key=cluster_private,
                shared=kind.mount(source) if kind and source else None,
                nvme=bool(config.size.nvme),
                metrics=metrics,
                steps=boot_steps(config),
            )
        )

    keys = pulumi.Output.all(user.public_key, cluster.private_key, host.private_key, host.public_key, folder)
    return keys.apply(lambda given: render((given[0], given[1], given[2], given[3], given[4])))
