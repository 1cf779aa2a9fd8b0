"""The nodes: one Uniform scale set in one placement group, which is one InfiniBand network."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import pulumi
from pulumi_azure_native.compute._enums import CachingTypes, UpgradeMode
from pulumi_azure_native.compute._inputs import (
    ApiEntityReferenceArgs,
    AutomaticOSUpgradePolicyArgs,
    BillingProfileArgs,
    BootDiagnosticsArgs,
    DiagnosticsProfileArgs,
    ImageReferenceArgs,
    LinuxConfigurationArgs,
    PlanArgs,
    SkuArgs,
    SshConfigurationArgs,
    SshPublicKeyArgs,
    SubResourceArgs,
    UpgradePolicyArgs,
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

from images.catalogue import Image, MarketplaceImage
from infra.config import ClusterConfig
from infra.keys import secret
from infra.network import Place

__all__ = ["NodeAccess", "build_scale_set"]

_REPLACED_WITH = [
    "sku.name",
    "plan",
    "virtualMachineProfile.priority",
    "virtualMachineProfile.osProfile.adminUsername",
    "virtualMachineProfile.osProfile.computerNamePrefix",
    "virtualMachineProfile.storageProfile.imageReference",
]
"""What makes a node what it is. Azure refuses to change some of these and would change others for nodes yet
to come only, which leaves two kinds of nodes in one job: the preview says that the set is replaced."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """What a node's first boot needs."""

    cloud_config: pulumi.Output[str]
    """Secret."""
    authorized_keys: tuple[pulumi.Output[str], ...]


def build_scale_set(
    place: Place,
    config: ClusterConfig,
    subnet_id: pulumi.Output[str],
    pool_id: pulumi.Output[str] | None,
    access: NodeAccess,
) -> VirtualMachineScaleSet:
    """The scale set. A changed ``nodeCount`` changes ``sku.capacity`` and nothing else.

    ``customData`` is looked at when the set is created and never again: a newer template must neither replace
    running nodes nor let those that join later differ from them.
    """
    plan = config.image.plan
    return VirtualMachineScaleSet(
        "nodes",
        resource_group_name=place.group.name,
        vm_scale_set_name=place.name,
        location=place.location,
        tags=place.tags,
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
            # -1: evicted for capacity alone, never for the price.
            billing_profile=BillingProfileArgs(max_price=-1) if config.spot else None,
            os_profile=_os_profile(config, access),
            storage_profile=VirtualMachineScaleSetStorageProfileArgs(
                image_reference=_image_reference(config.image),
                os_disk=VirtualMachineScaleSetOSDiskArgs(
                    create_option="FromImage",
                    caching=CachingTypes.READ_WRITE,
                    managed_disk=VirtualMachineScaleSetManagedDiskParametersArgs(
                        storage_account_type="Premium_LRS"
                    ),
                ),
            ),
            network_profile=_network_profile(config, subnet_id, pool_id),
            diagnostics_profile=DiagnosticsProfileArgs(boot_diagnostics=BootDiagnosticsArgs(enabled=True)),
        ),
        opts=pulumi.ResourceOptions.merge(
            place.opts,
            pulumi.ResourceOptions(
                ignore_changes=["virtualMachineProfile.osProfile.customData"],
                replace_on_changes=_REPLACED_WITH,
                delete_before_replace=True,
            ),
        ),
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
    config: ClusterConfig, subnet_id: pulumi.Output[str], pool_id: pulumi.Output[str] | None
) -> VirtualMachineScaleSetNetworkProfileArgs:
    pools = [SubResourceArgs(id=pool_id)] if pool_id else None
    return VirtualMachineScaleSetNetworkProfileArgs(
        network_interface_configurations=[
            VirtualMachineScaleSetNetworkConfigurationArgs(
                name="nic",
                primary=True,
                enable_accelerated_networking=bool(config.size.accelerated_networking),
                ip_configurations=[
                    VirtualMachineScaleSetIPConfigurationArgs(
                        name="primary",
                        primary=True,
                        subnet=ApiEntityReferenceArgs(id=subnet_id),
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
