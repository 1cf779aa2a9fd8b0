"""The nodes: one Uniform scale set in one placement group, which is one InfiniBand network."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_azure_native.compute._enums import (
    CachingTypes,
    DiffDiskOptions,
    ResourceIdentityType,
    UpgradeMode,
)
from pulumi_azure_native.compute._inputs import (
    ApiEntityReferenceArgs,
    AutomaticOSUpgradePolicyArgs,
    BillingProfileArgs,
    BootDiagnosticsArgs,
    DiagnosticsProfileArgs,
    DiffDiskSettingsArgs,
    ImageReferenceArgs,
    LinuxConfigurationArgs,
    PlanArgs,
    ScheduledEventsProfileArgs,
    SkuArgs,
    SshConfigurationArgs,
    SshPublicKeyArgs,
    SubResourceArgs,
    TerminateNotificationProfileArgs,
    UpgradePolicyArgs,
    VirtualMachineScaleSetIdentityArgs,
    VirtualMachineScaleSetIPConfigurationArgs,
    VirtualMachineScaleSetManagedDiskParametersArgs,
    VirtualMachineScaleSetNetworkConfigurationArgs,
    VirtualMachineScaleSetNetworkProfileArgs,
    VirtualMachineScaleSetOSDiskArgs,
    VirtualMachineScaleSetOSProfileArgs,
    VirtualMachineScaleSetStorageProfileArgs,
    VirtualMachineScaleSetVMProfileArgs,
)
from pulumi_azure_native.compute.virtual_machine_scale_set import VirtualMachineScaleSet

from images.os_images import Image, MarketplaceImage
from infra.cluster.groups import Place
from infra.cluster.keys import secret
from infra.cluster.network import NodeNetwork
from infra.config.cluster_config import ClusterConfig
from infra.config.limits import spot_price
from infra.config.replacing import BY_PROGRAM
from infra.naming import AGENT, AGENT_TAG, IDENTITY_TAG, IDLE_TAG, METRICS_TAG, MONITOR_TAG, NFS_TAG, TTL_TAG

if TYPE_CHECKING:  # its Pulumi package takes time to import, and plain clusters have no identity
    from infra.cluster.identity import Identity

__all__ = ["NodeAccess", "build_scale_set", "live_tags"]

_NOTICE = "PT5M"
"""Azure's longest wait between a VM's termination notice and its deletion: the shortest that can be set."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """The inputs of a node's first boot."""

    cloud_config: pulumi.Output[str]
    """A secret."""
    authorized_keys: tuple[pulumi.Output[str], ...]
    depends_on: tuple[pulumi.Resource, ...] = ()
    """Resources that the nodes use from their first boot on."""


def live_tags(config: ClusterConfig) -> dict[str, str]:
    """Return the settings that nodes read from their metadata service, so that changes reach running nodes.

    Another kind of shared storage, or another port of the metrics, replaces the nodes instead: these count at
    their first boot.
    """
    settings = {
        TTL_TAG: config.ttl_hours,
        IDLE_TAG: config.idle_stop_minutes,
        METRICS_TAG: config.metrics_port,
    }
    tags = {tag: f"{value:g}" for tag, value in settings.items() if value is not None}
    return tags | ({NFS_TAG: config.shared.kind} if config.shared else {})


def build_scale_set(
    place: Place,
    config: ClusterConfig,
    network: NodeNetwork,
    pool_id: pulumi.Output[str] | None,
    access: NodeAccess,
    identity: Identity | None = None,
    *,
    monitor_url: pulumi.Output[str] | None = None,
    keeps_document: bool = True,
) -> VirtualMachineScaleSet:
    """Make the scale set. A changed ``nodeCount`` changes ``sku.capacity`` alone.

    ``customData`` counts only when the set is created: a newer template must neither replace running nodes
    nor make later nodes differ from them. So does the tag with the version of the agent, which is in it.
    ``monitor_url`` reaches running nodes, which send their metrics there.
    ``keeps_document`` is off in the update that replaces the set: Pulumi (3.232) resets ignored properties
    inside another one to their old values in the new resource, too.
    """
    document = ["virtualMachineProfile.osProfile.customData", f'tags["{AGENT_TAG}"]']
    plan = config.image.plan
    return VirtualMachineScaleSet(
        "nodes",
        resource_group_name=place.group.name,
        vm_scale_set_name=place.name,
        location=place.location,
        tags={
            **place.tags,
            **live_tags(config),
            AGENT_TAG: AGENT,
            **({} if identity is None else {IDENTITY_TAG: identity.client_id}),
            **({} if monitor_url is None else {MONITOR_TAG: monitor_url}),
        },
        identity=VirtualMachineScaleSetIdentityArgs(
            type=ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[identity.id]
        )
        if identity
        else None,
        zones=[config.zone] if config.zone else None,
        sku=SkuArgs(name=config.size.name, tier="Standard", capacity=config.node_count),
        plan=PlanArgs(name=plan.name, product=plan.product, publisher=plan.publisher) if plan else None,
        orchestration_mode="Uniform",
        single_placement_group=True,
        platform_fault_domain_count=1,
        overprovision=False,
        upgrade_policy=UpgradePolicyArgs(
            mode=UpgradeMode.MANUAL,
            automatic_os_upgrade_policy=AutomaticOSUpgradePolicyArgs(enable_automatic_os_upgrade=False),
        ),
        virtual_machine_profile=VirtualMachineScaleSetVMProfileArgs(
            priority="Spot" if config.spot else "Regular",
            eviction_policy="Delete" if config.spot else None,
            billing_profile=BillingProfileArgs(max_price=spot_price(config.max_price, config.node_count))
            if config.spot
            else None,
            scheduled_events_profile=_scheduled_events(config),
            os_profile=_os_profile(config, access),
            storage_profile=VirtualMachineScaleSetStorageProfileArgs(
                image_reference=_image_reference(config.image), os_disk=_os_disk(config)
            ),
            network_profile=_network_profile(config, network, pool_id),
            diagnostics_profile=DiagnosticsProfileArgs(boot_diagnostics=BootDiagnosticsArgs(enabled=True)),
        ),
        opts=pulumi.ResourceOptions.merge(
            place.opts,
            pulumi.ResourceOptions(
                ignore_changes=document if keeps_document else None,
                replace_on_changes=[*BY_PROGRAM],
                delete_before_replace=True,
                depends_on=list(access.depends_on),
            ),
        ),
    )


def _scheduled_events(config: ClusterConfig) -> ScheduledEventsProfileArgs | None:
    """Return the termination notice; ``None`` for spot VMs, which get one anyway and refuse the setting."""
    if config.spot:
        return None
    notice = TerminateNotificationProfileArgs(enable=True, not_before_timeout=_NOTICE)
    return ScheduledEventsProfileArgs(terminate_notification_profile=notice)


def _os_disk(config: ClusterConfig) -> VirtualMachineScaleSetOSDiskArgs:
    if config.ephemeral_os_disk:
        # Without a placement Azure takes the cache disk where the size has one, else the temporary or an
        # NVMe disk (description of diffDiskSettings in its compute API).
        return VirtualMachineScaleSetOSDiskArgs(
            create_option="FromImage",
            caching=CachingTypes.READ_ONLY,
            diff_disk_settings=DiffDiskSettingsArgs(option=DiffDiskOptions.LOCAL),
        )
    return VirtualMachineScaleSetOSDiskArgs(
        create_option="FromImage",
        caching=CachingTypes.READ_WRITE,
        disk_size_gb=config.os_disk_gib,
        managed_disk=VirtualMachineScaleSetManagedDiskParametersArgs(storage_account_type="Premium_LRS"),
    )


def _os_profile(config: ClusterConfig, access: NodeAccess) -> VirtualMachineScaleSetOSProfileArgs:
    path = f"/home/{config.admin_user}/.ssh/authorized_keys"
    return VirtualMachineScaleSetOSProfileArgs(
        computer_name_prefix=config.computer_name_prefix,
        admin_username=config.admin_user,
        custom_data=secret(access.cloud_config).apply(lambda text: base64.b64encode(text.encode()).decode()),
        linux_configuration=LinuxConfigurationArgs(
            disable_password_authentication=True,
            provision_vm_agent=True,
            ssh=SshConfigurationArgs(
                public_keys=[SshPublicKeyArgs(path=path, key_data=key) for key in access.authorized_keys]
            ),
        ),
    )


def _network_profile(
    config: ClusterConfig, network: NodeNetwork, pool_id: pulumi.Output[str] | None
) -> VirtualMachineScaleSetNetworkProfileArgs:
    pools = [SubResourceArgs(id=pool_id)] if pool_id else None
    return VirtualMachineScaleSetNetworkProfileArgs(
        network_interface_configurations=[
            VirtualMachineScaleSetNetworkConfigurationArgs(
                name="nic",
                primary=True,
                enable_accelerated_networking=bool(config.size.accelerated_networking),
                network_security_group=SubResourceArgs(id=network.guard_id) if network.guard_id else None,
                ip_configurations=[
                    VirtualMachineScaleSetIPConfigurationArgs(
                        name="primary",
                        primary=True,
                        subnet=ApiEntityReferenceArgs(id=network.subnet_id),
                        load_balancer_backend_address_pools=pools,
                    )
                ],
            )
        ]
    )


def _image_reference(image: Image) -> ImageReferenceArgs:
    if isinstance(image, MarketplaceImage):
        return ImageReferenceArgs(
            publisher=image.publisher, offer=image.offer, sku=image.sku, version=image.version
        )
    return ImageReferenceArgs(id=image.id)
