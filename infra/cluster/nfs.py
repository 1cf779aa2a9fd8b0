"""A folder that all nodes share: a premium file share of Azure, or a VM with striped disks."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import pulumi

from images.nfs_server import EXPORT, SERVER_IMAGE, NfsServerSetup, server_cloud_config, stripes
from images.os_images import MarketplaceImage, parse_image
from infra.cluster.groups import Place
from infra.cluster.network import NodeNetwork
from infra.config import ClusterConfig

__all__ = ["SERVER_SIZE", "SHARE", "SharedFolder", "build_server", "build_share"]

SHARE = "shared"
SERVER_SIZE = "Standard_E8s_v5"


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """What the nodes mount."""

    source: pulumi.Output[str]
    """``server:/path``"""
    ready: list[pulumi.Resource]
    """What has to be there before a node may mount it."""


def build_share(place: Place, data: Place, config: ClusterConfig, network: NodeNetwork) -> SharedFolder:
    """A premium file share in ``data``."""
    from pulumi_azure_native.storage.file_share import FileShare

    from infra.cluster.blob import build_account

    private = config.storage == "privateEndpoint"
    account = build_account(
        "nfs",
        data,
        config,
        network,
        private=private,
        kind="FileStorage",
        sku="Premium_LRS",
        # NFS has no encryption of its own that an account could insist on: the network is what guards it.
        https_only=False,
    )
    share = FileShare(
        "shared",
        account_name=account.name,
        share_name=SHARE,
        enabled_protocols="NFS",
        root_squash="NoRootSquash",
        share_quota=config.nfs_size_gib,
        resource_group_name=data.group.name,
        opts=data.opts,
    )
    ready: list[pulumi.Resource] = [share]
    if private:
        from infra.cluster.private_endpoint import build_private_endpoint

        ready += build_private_endpoint(place, network, "file", account.id)
    return SharedFolder(
        account.name.apply(lambda name: f"{name}.file.core.windows.net:/{name}/{SHARE}"), ready
    )


def build_server(
    place: Place,
    data: Place,
    config: ClusterConfig,
    network: NodeNetwork,
    operator_key: pulumi.Output[str],
) -> SharedFolder:
    """A VM whose disks are in ``data``; ``operator_key`` is the one public key that may log in."""
    from pulumi_azure_native.compute._enums import CachingTypes
    from pulumi_azure_native.compute._inputs import (
        BootDiagnosticsArgs,
        CreationDataArgs,
        DataDiskArgs,
        DiagnosticsProfileArgs,
        DiskSkuArgs,
        HardwareProfileArgs,
        ImageReferenceArgs,
        LinuxConfigurationArgs,
        ManagedDiskParametersArgs,
        NetworkInterfaceReferenceArgs,
        NetworkProfileArgs,
        OSDiskArgs,
        OSProfileArgs,
        SshConfigurationArgs,
        SshPublicKeyArgs,
        StorageProfileArgs,
    )
    from pulumi_azure_native.compute.disk import Disk
    from pulumi_azure_native.compute.virtual_machine import VirtualMachine
    from pulumi_azure_native.network._inputs import NetworkInterfaceIPConfigurationArgs, SubnetArgs
    from pulumi_azure_native.network.network_interface import NetworkInterface

    image = parse_image(SERVER_IMAGE)
    assert isinstance(image, MarketplaceImage)  # noqa: S101 - a constant
    name = f"{place.name}-nfs"
    striped = stripes(config.nfs_size_gib)
    zones = [config.zone] if config.zone else None
    nic = NetworkInterface(
        "nfs-nic",
        network_interface_name=f"{name}-nic",
        enable_accelerated_networking=True,
        network_security_group=network.nic_guard,
        ip_configurations=[
            NetworkInterfaceIPConfigurationArgs(
                name="primary",
                primary=True,
                subnet=SubnetArgs(id=network.subnet_id),
                private_ip_allocation_method="Dynamic",
            )
        ],
        resource_group_name=place.group.name,
        location=place.location,
        tags=place.tags,
        opts=place.opts,
    )
    disks = [
        Disk(
            f"nfs-disk-{lun}",
            disk_name=f"{name}-{lun}",
            creation_data=CreationDataArgs(create_option="Empty"),
            disk_size_gb=striped.disk_gib,
            sku=DiskSkuArgs(name="Premium_LRS"),
            # Nobody downloads it: it is read through the machine alone.
            network_access_policy="DenyAll",
            public_network_access="Disabled",
            zones=zones,
            resource_group_name=data.group.name,
            location=data.location,
            tags=data.tags,
            opts=data.opts,
        )
        for lun in range(striped.disks)
    ]
    keys = f"/home/{config.admin_user}/.ssh/authorized_keys"
    machine = VirtualMachine(
        "nfs-server",
        vm_name=name,
        hardware_profile=HardwareProfileArgs(vm_size=SERVER_SIZE),
        zones=zones,
        storage_profile=StorageProfileArgs(
            image_reference=ImageReferenceArgs(
                publisher=image.publisher, offer=image.offer, sku=image.sku, version=image.version
            ),
            os_disk=OSDiskArgs(
                create_option="FromImage",
                caching=CachingTypes.READ_WRITE,
                delete_option="Delete",
                managed_disk=ManagedDiskParametersArgs(storage_account_type="Premium_LRS"),
            ),
            data_disks=[
                DataDiskArgs(
                    lun=lun,
                    create_option="Attach",
                    delete_option="Detach",
                    caching=CachingTypes.NONE,
                    managed_disk=ManagedDiskParametersArgs(id=disk.id),
                )
                for lun, disk in enumerate(disks)
            ],
        ),
        os_profile=OSProfileArgs(
            computer_name=name,
            admin_username=config.admin_user,
            custom_data=_server_cloud_config(config, striped.disks),
            linux_configuration=LinuxConfigurationArgs(
                disable_password_authentication=True,
                provision_vm_agent=True,
                ssh=SshConfigurationArgs(
                    # Not the cluster's key: it lies on every node, and this user may become root.
                    public_keys=[SshPublicKeyArgs(path=keys, key_data=operator_key)]
                ),
            ),
        ),
        network_profile=NetworkProfileArgs(
            network_interfaces=[NetworkInterfaceReferenceArgs(id=nic.id, primary=True)]
        ),
        diagnostics_profile=DiagnosticsProfileArgs(boot_diagnostics=BootDiagnosticsArgs(enabled=True)),
        resource_group_name=place.group.name,
        location=place.location,
        tags=place.tags,
        opts=pulumi.ResourceOptions.merge(
            place.opts,
            # As with the nodes: a newer template must not replace what is there.
            pulumi.ResourceOptions(ignore_changes=["osProfile.customData"], delete_before_replace=True),
        ),
    )
    address = nic.ip_configurations.apply(
        lambda given: (given[0].private_ip_address if given else None) or ""
    )
    return SharedFolder(address.apply(lambda own: f"{own}:{EXPORT}"), [machine])


def _server_cloud_config(config: ClusterConfig, disks: int) -> str:
    setup = NfsServerSetup(user=config.admin_user, subnet_prefix=config.subnet_prefix, disks=disks)
    return base64.b64encode(server_cloud_config(setup).encode()).decode()
