"""Blob storage of the nodes: one private account with a container for data and one for results."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native.storage._enums import Action, DefaultAction, PublicAccess
from pulumi_azure_native.storage._inputs import (
    EncryptionArgs,
    EncryptionServiceArgs,
    EncryptionServicesArgs,
    IPRuleArgs,
    NetworkRuleSetArgs,
    SkuArgs,
    VirtualNetworkRuleArgs,
)
from pulumi_azure_native.storage.blob_container import BlobContainer
from pulumi_azure_native.storage.blob_service_properties import BlobServiceProperties
from pulumi_azure_native.storage.storage_account import StorageAccount

from infra.cluster.groups import Place
from infra.cluster.identity import BLOB_CONTRIBUTOR, Identity, allow, allow_operator, built_in_role
from infra.cluster.network import NodeNetwork
from infra.config.cluster_config import ClusterConfig
from infra.config.storage_settings import firewall_sources
from infra.naming import BLOBS, CONTAINERS

__all__ = ["BlobStorage", "build_account", "build_storage"]


@dataclass(frozen=True, slots=True)
class BlobStorage:
    """The account that the nodes read and write."""

    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    """``https://<account>.blob.core.windows.net/``"""
    ready: list[pulumi.Resource]
    """What must exist before a node can use it."""


def build_storage(
    place: Place, data: Place | None, config: ClusterConfig, network: NodeNetwork, identity: Identity
) -> BlobStorage:
    """Make the stack's own account in ``data``, or use the existing one, which is not changed.

    The nodes get rights on blobs of the two containers, which an existing account must have. With a private
    endpoint nobody reaches the stack's own account another way, the operator included.
    """
    if config.storage_account_id is not None or data is None:
        assert config.storage_account_id is not None  # noqa: S101 - an own account has a place
        given = StorageAccount.get("given-storage", config.storage_account_id, place.opts)
        account_id, name, endpoint = given.id, given.name, given.primary_endpoints.blob
        ready: list[pulumi.Resource] = []
        scopes = {
            container: pulumi.Output.concat(account_id, "/blobServices/default/containers/", container)
            for container in CONTAINERS
        }
    else:
        account = build_account(
            BLOBS,
            data,
            config,
            network,
            private=config.storage == "privateEndpoint",
            kind="StorageV2",
            sku="Standard_LRS",
        )
        account_id, name, endpoint = account.id, account.name, account.primary_endpoints.blob
        ready = [
            BlobServiceProperties(
                "blobs",
                account_name=account.name,
                blob_services_name="default",
                is_versioning_enabled=True,
                resource_group_name=data.group.name,
                opts=data.opts,
            )
        ]
        containers = {
            container: BlobContainer(
                container,
                container_name=container,
                account_name=account.name,
                public_access=PublicAccess.NONE,
                resource_group_name=data.group.name,
                opts=data.opts,
            )
            for container in CONTAINERS
        }
        scopes = {container: made.id for container, made in containers.items()}
        ready += containers.values()
    role = built_in_role(place, BLOB_CONTRIBUTOR)
    ready += [allow(place, identity, container, role, scope) for container, scope in scopes.items()]
    for operator in config.data_operators:
        for container, scope in scopes.items():
            allow_operator(place, container, operator, role, scope)
    if config.storage == "privateEndpoint":
        from infra.cluster.private_endpoint import build_private_endpoint

        ready += build_private_endpoint(place, network, "blob", account_id)
    return BlobStorage(name, endpoint, ready)


def build_account(
    purpose: str,
    data: Place,
    config: ClusterConfig,
    network: NodeNetwork,
    *,
    private: bool,
    kind: str,
    sku: str,
    https_only: bool = True,
) -> StorageAccount:
    """Make an account without public blobs or keys that only the nodes' subnet and the operator reach.

    ``private``: it is reached through a private endpoint alone.
    """
    subnets, sources = ((), ()) if private else ((network.subnet_id,), firewall_sources(config.ssh_from))
    return StorageAccount(
        purpose,
        account_name=data.storage_name(purpose),
        kind=kind,
        sku=SkuArgs(name=sku),
        allow_blob_public_access=False,
        allow_cross_tenant_replication=False,
        allow_shared_key_access=False,
        default_to_o_auth_authentication=True,
        enable_https_traffic_only=https_only,
        is_local_user_enabled=False,
        minimum_tls_version="TLS1_2",
        public_network_access="Disabled" if private else "Enabled",
        encryption=EncryptionArgs(
            key_source="Microsoft.Storage",
            require_infrastructure_encryption=True,
            services=EncryptionServicesArgs(
                blob=EncryptionServiceArgs(enabled=True, key_type="Account"),
                file=EncryptionServiceArgs(enabled=True, key_type="Account"),
            ),
        ),
        network_rule_set=NetworkRuleSetArgs(
            default_action=DefaultAction.DENY,
            bypass="None",
            virtual_network_rules=[
                VirtualNetworkRuleArgs(virtual_network_resource_id=subnet, action=Action.ALLOW)
                for subnet in subnets
            ],
            ip_rules=[IPRuleArgs(i_p_address_or_range=source, action=Action.ALLOW) for source in sources],
        ),
        **data.common,
    )
