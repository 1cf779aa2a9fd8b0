"""Blob and file services of storage accounts, with their containers and shares.

Containers are those of this machine's blob service. Shares only exist: no node mounts one here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.services import Services
from rehearsal.arm.storage.accounts import services_of

__all__ = ["ENTRIES"]

_NAME = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")


def _type(path: str, model_name: str, *names: str, **more: Any) -> ResourceType:
    return ResourceType(
        f"Microsoft.Storage/storageAccounts/{path}",
        f"storage.{model_name}",
        ("accountName", *names),
        patch_model=f"storage.{model_name}",
        shows_state=False,
        tracked=False,
        sync=True,
        **more,
    )


class _ContentHooks(Hooks[Services]):
    """What lies in a service of an account."""

    what = ""
    defaults: Mapping[str, str] = {}

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a name that no container or share may have."""
        if not _NAME.fullmatch(rid.name) and rid.name not in ("$root", "$web", "$logs"):
            problem = (
                f"The specified {self.what} name length is not within the permissible limits, or it has "
                f"characters that are not allowed: '{rid.name}'."
            )
            raise ArmError(400, "InvalidResourceName", problem)
        return body

    def show(self, record: Record, shown: Body) -> None:
        defaults = {**self.defaults, "lastModifiedTime": record.created}
        shown["properties"] = {**defaults, **shown["properties"]}


class _ContainerHooks(_ContentHooks):
    """Containers of this machine's blob service."""

    what = "container"
    defaults: Mapping[str, str] = {"publicAccess": "None"}

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse public access where the account forbids it, and accounts without blobs."""
        account = self.services.subscription.find(rid.parent.parent)
        level = body["properties"].get("publicAccess") or "None"
        if level != "None" and not account.properties.get("allowBlobPublicAccess", False):
            problem = "Public access is not permitted on this storage account."
            raise ArmError(409, "PublicAccessNotPermitted", problem)
        if "blob" not in services_of(account):
            problem = f"Blob is not supported for the account {account.id.name}."
            raise ArmError(400, "FeatureNotSupportedForAccount", problem)
        return super().accept(rid, body, old)

    async def apply(self, record: Record, old: Body | None) -> None:
        if old is None:
            account = self.services.subscription.find(record.id.parent.parent)
            await self.services.blobs.create_container(account, record.id.name)

    async def remove(self, record: Record) -> None:
        """Delete the container from the blob service, unless the account goes, too."""
        account = self.services.subscription.resources.get(record.id.parent.parent.key)
        if account is not None and account.state != "Deleting":
            await self.services.blobs.delete_container(account, record.id.name)


class _ShareHooks(_ContentHooks):
    """Shares are checked and shown."""

    what = "share"
    defaults: Mapping[str, str] = {"enabledProtocols": "SMB"}

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse NFS on an account that is not for files."""
        account = self.services.subscription.find(rid.parent.parent)
        protocol = body["properties"].get("enabledProtocols", "SMB")
        if protocol == "NFS" and account.body["kind"] != "FileStorage":
            problem = f"NFS is not supported for the account {account.id.name}."
            raise ArmError(400, "FeatureNotSupportedForAccount", problem)
        return super().accept(rid, body, old)


_FIXED = ("defaultEncryptionScope", "denyEncryptionScopeOverride")
ENTRIES = (
    (_type("blobServices", "BlobServiceProperties", "blobServicesName", singleton=True), Hooks),
    (_type("fileServices", "FileServiceProperties", "fileServicesName", singleton=True), Hooks),
    (
        _type("blobServices/containers", "BlobContainer", "=default", "containerName", immutable=_FIXED),
        _ContainerHooks,
    ),
    (
        _type("fileServices/shares", "FileShare", "=default", "shareName", immutable=("enabledProtocols",)),
        _ShareHooks,
    ),
)
