"""Blob services of storage accounts with their containers."""

from __future__ import annotations

from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.services import Services
from rehearsal.arm.storage.accounts import ServiceHooks, account_of, check_child_name, services_of

__all__ = ["ENTRIES", "ContainerHooks"]

Body = dict[str, Any]
_SERVICES = ResourceType(
    "Microsoft.Storage/storageAccounts/blobServices",
    "storage.BlobServiceProperties",
    ("accountName", "blobServicesName"),
    tracked=False,
    singleton=True,
    sync=True,
)
_CONTAINERS = ResourceType(
    f"{_SERVICES.type}/containers",
    "storage.BlobContainer",
    ("accountName", "=default", "containerName"),
    patch_model="storage.BlobContainer",
    immutable=("defaultEncryptionScope", "denyEncryptionScopeOverride"),
    tracked=False,
    sync=True,
)


class ContainerHooks(Hooks[Services]):
    """Containers of this machine's blob service."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse public access where the account forbids it, and accounts without blobs."""
        account = account_of(self.services.subscription, rid)
        level = (body.get("properties") or {}).get("publicAccess") or "None"
        if level != "None" and not account.properties.get("allowBlobPublicAccess", False):
            problem = "Public access is not permitted on this storage account."
            raise ArmError(409, "PublicAccessNotPermitted", problem)
        if "blob" not in services_of(account):
            problem = f"Blob is not supported for the account {account.id.name}."
            raise ArmError(400, "FeatureNotSupportedForAccount", problem)
        check_child_name(rid, "container")
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        """Create the container in the blob service."""
        if old is None:
            await self.services.blobs.create_container(
                account_of(self.services.subscription, record.id), record.id.name
            )

    async def remove(self, record: Record) -> None:
        """Delete the container from the blob service, unless the account goes, too."""
        account = self.services.subscription.resources.get(record.id.parent.parent.key)
        if account is not None and account.state != "Deleting":
            await self.services.blobs.delete_container(account, record.id.name)

    def show(self, record: Record, shown: Body) -> None:
        """Add the defaults."""
        shown["properties"].setdefault("publicAccess", "None")
        shown["properties"].setdefault("lastModifiedTime", record.created)
        shown["properties"].pop("provisioningState", None)


ENTRIES = ((_SERVICES, ServiceHooks), (_CONTAINERS, ContainerHooks))
