"""Shared storage ``vm``: a VM that exports striped premium disks by NFS."""

from __future__ import annotations

import base64

from images.nfs_server import EXPORT, SERVER_IMAGE, server_cloud_config, stripes
from images.os_images import MarketplaceImage, parse_image
from images.shared_mount import SharedMount
from infra.cluster.shared.base import SIZE_KEY, SharedResources, SharedSite, read_size
from infra.config.cluster_config import ClusterConfig, SharedFolder, Storage
from infra.config.collector import Settings
from infra.preflight.meters import Part, os_disk, premium_disk

__all__ = ["SERVER_SIZE", "NfsVm"]

SERVER_SIZE = "Standard_E8s_v5"
_REPLACING = ("adminUser", "location", "nfs", "zone")
"""Settings whose change makes another server."""


class NfsVm:
    """A server whose disks outlive it: they lie in the data group, and are detached when it is deleted."""

    name = "vm"
    keys: tuple[str, ...] = (SIZE_KEY,)

    def read(self, settings: Settings, _storage: Storage) -> SharedFolder:
        """Return the configured folder; the server takes one address."""
        return SharedFolder(kind=self.name, size_gib=read_size(settings), addresses=1)

    def build(self, site: SharedSite) -> SharedResources:
        """Make the server and its disks."""
        import pulumi
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

        config, data, place = site.config, site.data, site.place
        assert config.shared is not None and data is not None  # noqa: S101 - see read()
        image = parse_image(SERVER_IMAGE)
        assert isinstance(image, MarketplaceImage)  # noqa: S101 - a constant
        name = _server_name(place.name)
        striped = stripes(config.shared.size_gib)
        zones = [config.zone] if config.zone else None
        boot = server_cloud_config(
            user=config.admin_user, subnet_prefix=config.subnet_prefix, disks=striped.disks
        )
        nic = NetworkInterface(
            "nfs-nic",
            network_interface_name=f"{name}-nic",
            enable_accelerated_networking=True,
            network_security_group=site.network.nic_guard,
            ip_configurations=[
                NetworkInterfaceIPConfigurationArgs(
                    name="primary",
                    primary=True,
                    subnet=SubnetArgs(id=site.network.subnet_id),
                    private_ip_allocation_method="Dynamic",
                )
            ],
            **place.common,
        )
        disks = [
            Disk(
                f"nfs-disk-{lun}",
                disk_name=f"{name}-{lun}",
                creation_data=CreationDataArgs(create_option="Empty"),
                disk_size_gb=striped.disk_gib,
                sku=DiskSkuArgs(name="Premium_LRS"),
                # No download: only the server reads it.
                network_access_policy="DenyAll",
                public_network_access="Disabled",
                zones=zones,
                **data.common,
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
                custom_data=base64.b64encode(boot.encode()).decode(),
                linux_configuration=LinuxConfigurationArgs(
                    disable_password_authentication=True,
                    provision_vm_agent=True,
                    ssh=SshConfigurationArgs(
                        # Not the cluster's key: every node has it, and this user may become root.
                        public_keys=[SshPublicKeyArgs(path=keys, key_data=site.operator_key)]
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
                # As with the nodes: a newer template must not replace what is there, and a new server must
                # not boot by the former one's document.
                pulumi.ResourceOptions(
                    ignore_changes=["osProfile.customData"] if site.changed.isdisjoint(_REPLACING) else None,
                    delete_before_replace=True,
                ),
            ),
        )
        address = nic.ip_configurations.apply(
            lambda given: (given[0].private_ip_address if given else None) or ""
        )
        return SharedResources(address.apply(lambda own: f"{own}:{EXPORT}"), [machine])

    def mount(self, source: str) -> SharedMount:
        """Return an NFS mount."""
        return SharedMount(source)

    def parts(self, name: str, config: ClusterConfig) -> list[Part]:
        """Return the server and its disks."""
        assert config.shared is not None  # noqa: S101 - it is of this kind
        server, striped = _server_name(name), stripes(config.shared.size_gib)
        meter = premium_disk(striped.disk_gib)
        return [
            Part(what="NFS server", name=server, billing="vm", size=SERVER_SIZE),
            os_disk(1, server),
            Part(
                what="NFS disk",
                name=f"{server}-0 …",
                count=striped.disks,
                billing="unknown" if meter is None else "meter",
                meter=meter,
                note=f"{striped.disk_gib} GiB each",
            ),
        ]


def _server_name(cluster: str) -> str:
    return f"{cluster}-nfs"
