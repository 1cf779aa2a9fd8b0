"""Shared storage ``files``: a premium file share of Azure Files, mounted by NFS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from images.shared_mount import SharedMount
from infra.cluster.shared.base import SIZE_KEY, SharedResources, SharedSite, read_size
from infra.config.cluster_config import ClusterConfig, SharedFolder, Storage
from infra.config.collector import Settings
from infra.preflight.meters import NFS_SHARE, Part, endpoint_parts

if TYPE_CHECKING:
    import pulumi

__all__ = ["AzureFiles"]

_SHARE = "shared"


class AzureFiles:
    """A premium file share: replicated in its zone by Azure, billed by its size."""

    name = "files"
    keys: tuple[str, ...] = (SIZE_KEY,)

    def read(self, settings: Settings, storage: Storage) -> SharedFolder:
        """Return the configured folder, which the nodes reach as they reach blob storage."""
        private = storage == "privateEndpoint"
        return SharedFolder(
            kind=self.name, size_gib=read_size(settings), addresses=int(private), service_endpoint=not private
        )

    def build(self, site: SharedSite) -> SharedResources:
        """Make the storage account and its share."""
        from pulumi_azure_native.storage.file_share import FileShare

        from infra.cluster.blob import build_account

        config, data = site.config, site.data
        assert config.shared is not None and data is not None  # noqa: S101 - see read()
        private = config.storage == "privateEndpoint"
        account = build_account(
            "nfs",
            data,
            config,
            site.network,
            private=private,
            kind="FileStorage",
            sku="Premium_LRS",
            # NFS has no encryption that an account could require: the network is what guards it.
            https_only=False,
        )
        share = FileShare(
            _SHARE,
            account_name=account.name,
            share_name=_SHARE,
            enabled_protocols="NFS",
            root_squash="NoRootSquash",
            share_quota=config.shared.size_gib,
            resource_group_name=data.group.name,
            opts=data.opts,
        )
        ready: list[pulumi.Resource] = [share]
        if private:
            from infra.cluster.private_endpoint import build_private_endpoint

            ready += build_private_endpoint(site.place, site.network, "file", account.id)
        return SharedResources(
            account.name.apply(lambda name: f"{name}.file.core.windows.net:/{name}/{_SHARE}"), ready
        )

    def mount(self, source: str) -> SharedMount:
        """Return an NFS mount."""
        return SharedMount(source)

    def parts(self, name: str, config: ClusterConfig) -> list[Part]:
        """Return the share and, with ``storage: privateEndpoint``, its endpoint."""
        assert config.shared is not None  # noqa: S101 - it is of this kind
        gib = config.shared.size_gib
        note = f"{gib} GiB"
        share = Part(what="NFS share", name=_SHARE, billing="meter", meter=NFS_SHARE, units=gib, note=note)
        private = config.storage == "privateEndpoint"
        return [share, *(endpoint_parts(f"{name}-file", "file") if private else [])]
