"""File services of storage accounts with their shares, which only exist: no node mounts one here."""

from __future__ import annotations

from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.services import Services
from rehearsal.arm.storage.accounts import ServiceHooks, account_of, check_child_name

__all__ = ["ENTRIES", "ShareHooks"]

Body = dict[str, Any]
_SERVICES = ResourceType(
    "Microsoft.Storage/storageAccounts/fileServices",
    "storage.FileServiceProperties",
    ("accountName", "fileServicesName"),
    tracked=False,
    singleton=True,
    sync=True,
)
_SHARES = ResourceType(
    f"{_SERVICES.type}/shares",
    "storage.FileShare",
    ("accountName", "=default", "shareName"),
    patch_model="storage.FileShare",
    immutable=("enabledProtocols",),
    tracked=False,
    sync=True,
)


class ShareHooks(Hooks[Services]):
    """Shares are checked and shown."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse NFS on an account that is not for files."""
        account = account_of(self.services.subscription, rid)
        protocol = (body.get("properties") or {}).get("enabledProtocols", "SMB")
        if protocol == "NFS" and account.body["kind"] != "FileStorage":
            problem = f"NFS is not supported for the account {account.id.name}."
            raise ArmError(400, "FeatureNotSupportedForAccount", problem)
        check_child_name(rid, "share")
        return body

    def show(self, record: Record, shown: Body) -> None:
        """Add the defaults."""
        shown["properties"].setdefault("enabledProtocols", "SMB")
        shown["properties"].setdefault("lastModifiedTime", record.created)
        shown["properties"].pop("provisioningState", None)


ENTRIES = ((_SERVICES, ServiceHooks), (_SHARES, ShareHooks))
