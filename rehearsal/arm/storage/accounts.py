"""Storage accounts, containers and shares: what Azure checks of them and adds."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING, Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.storage.storage_types import ACCOUNTS, BLOB_SERVICES, CONTAINERS, FILE_SERVICES, SHARES

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["HOOKS", "account_key", "account_of"]

_NAME = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")
_SERVICES = {"StorageV2": ("blob", "dfs", "file", "queue", "table", "web"), "FileStorage": ("file",)}
_PREMIUM_FILES = ("Premium_LRS", "Premium_ZRS", "PremiumV2_LRS", "PremiumV2_ZRS")


def account_key(record: Record, name: str) -> str:
    """The access key ``name`` of a storage account, the same for as long as the account is there."""
    seed = f"{record.guid} {name}".encode()
    return base64.b64encode(hashlib.sha512(seed).digest()).decode()


def account_of(subscription: Subscription, rid: ResourceId) -> Record:
    """The account that a container, share or service belongs to."""
    return subscription.find(ResourceId(rid.subscription, rid.group, rid.namespace, rid.parts[:2]))


def _accept_account(
    subscription: Subscription, rid: ResourceId, body: dict[str, Any], old: dict[str, Any] | None
) -> dict[str, Any]:
    if not _NAME.fullmatch(rid.name):
        raise ArmError(
            400,
            "AccountNameInvalid",
            f"{rid.name} is not a valid storage account name. Storage account name must be between 3 and 24 "
            "characters in length and use numbers and lower-case letters only.",
        )
    elsewhere = [r for r in subscription.of_type(ACCOUNTS) if r.id.key != rid.key]
    if rid.name in subscription.taken_names or any(r.id.name.lower() == rid.name.lower() for r in elsewhere):
        problem = f"The storage account named {rid.name} is already taken."
        raise ArmError(409, "StorageAccountAlreadyTaken", problem, "StorageAccount")
    properties = body.get("properties") or {}
    if body["kind"] == "FileStorage" and body["sku"]["name"] not in _PREMIUM_FILES:
        # The refusal is Azure's; its exact words for this pair are not known here.
        problem = f"The sku {body['sku']['name']} is not valid for kind FileStorage."
        raise ArmError(400, "InvalidRequestPropertyValue", problem, "sku.name")
    _check_rules(subscription, rid, properties.get("networkAcls") or {})
    before = (old or {}).get("properties") or {}
    # What a PUT leaves out stays as it was.
    return {**body, "properties": {**before, **properties}}


def _check_rules(subscription: Subscription, rid: ResourceId, rules: dict[str, Any]) -> None:
    for rule in rules.get("virtualNetworkRules") or ():
        subnet = ResourceId.parse(rule["id"])
        if subnet is None or not subscription.exists(subnet):
            problem = f"Validation of network acls failure: NotFound:{rule['id']} was not found."
            raise ArmError(400, "NetworkAclsValidationFailure", problem)
        offered = subscription.element(subnet).get("properties", {}).get("serviceEndpoints") or ()
        if not any(o.get("service") in ("Microsoft.Storage", "Microsoft.Storage.Global") for o in offered):
            raise ArmError(
                400,
                "NetworkAclsValidationFailure",
                "Validation of network acls failure: SubnetsHaveNoServiceEndpointsConfigured:Subnets "
                f"{subnet.name} of virtual network {subnet.parent} do not have ServiceEndpoints for "
                "Microsoft.Storage resources configured. Add Microsoft.Storage to subnet's ServiceEndpoints "
                "collection before trying to ACL Microsoft.Storage resources to these subnets.",
            )
    for rule in rules.get("ipRules") or ():
        if re.fullmatch(r"(10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.).*|.*/(31|32)", rule["value"]):
            # learn.microsoft.com storage-network-security: no private ranges, no /31 and /32.
            problem = (
                f"The IP rule value '{rule['value']}' is not valid: private ranges, /31 and /32 are not."
            )
            raise ArmError(400, "InvalidValuesForRequestedNetworkAcls", problem, rid.name)


def _show_account(subscription: Subscription, record: Record, shown: dict[str, Any]) -> None:
    services = _SERVICES.get(record.body["kind"], ("blob",))
    ends = {s: f"https://{record.id.name}.{s}.core.windows.net/" for s in services}
    ends.update(subscription.endpoints.get(record.id.key, {}))
    shown["sku"] = {**record.body["sku"], "tier": record.body["sku"]["name"].partition("_")[0]}
    properties = shown["properties"]
    properties.update(
        primaryEndpoints=ends,
        primaryLocation=record.body["location"],
        statusOfPrimary="available",
        creationTime=record.created,
    )
    properties.setdefault("supportsHttpsTrafficOnly", True)
    properties.setdefault("accessTier", "Hot")


def _child_body(rid: ResourceId, body: dict[str, Any], what: str) -> dict[str, Any]:
    if not _CONTAINER.fullmatch(rid.name) and rid.name not in ("$root", "$web", "$logs"):
        problem = (
            f"The specified {what} name length is not within the permissible limits, or it has characters "
            f"that are not allowed: '{rid.name}'."
        )
        raise ArmError(400, "InvalidResourceName", problem)
    return body


def _accept_container(
    subscription: Subscription, rid: ResourceId, body: dict[str, Any], _old: dict[str, Any] | None
) -> dict[str, Any]:
    account = account_of(subscription, rid)
    level = (body.get("properties") or {}).get("publicAccess") or "None"
    if level != "None" and not account.properties.get("allowBlobPublicAccess", False):
        problem = "Public access is not permitted on this storage account."
        raise ArmError(409, "PublicAccessNotPermitted", problem)
    if "blob" not in _SERVICES.get(account.body["kind"], ("blob",)):
        problem = f"Blob is not supported for the account {account.id.name}."
        raise ArmError(400, "FeatureNotSupportedForAccount", problem)
    return _child_body(rid, body, "container")


async def _apply_container(subscription: Subscription, record: Record, old: dict[str, Any] | None) -> None:
    if old is None:
        await subscription.blobs.create_container(account_of(subscription, record.id), record.id.name)


async def _remove_container(subscription: Subscription, record: Record) -> None:
    account = subscription.resources.get(record.id.parent.parent.key)
    if account is not None and account.state != "Deleting":
        await subscription.blobs.delete_container(account, record.id.name)


def _accept_share(
    subscription: Subscription, rid: ResourceId, body: dict[str, Any], _old: dict[str, Any] | None
) -> dict[str, Any]:
    account = account_of(subscription, rid)
    protocol = (body.get("properties") or {}).get("enabledProtocols", "SMB")
    if protocol == "NFS" and account.body["kind"] != "FileStorage":
        problem = f"NFS is not supported for the account {account.id.name}."
        raise ArmError(400, "FeatureNotSupportedForAccount", problem)
    return _child_body(rid, body, "share")


def _show_share(_: Subscription, record: Record, shown: dict[str, Any]) -> None:
    shown["properties"].setdefault("enabledProtocols", "SMB")
    shown["properties"].setdefault("lastModifiedTime", record.created)
    shown["properties"].pop("provisioningState", None)


def _show_container(_: Subscription, record: Record, shown: dict[str, Any]) -> None:
    shown["properties"].setdefault("publicAccess", "None")
    shown["properties"].setdefault("lastModifiedTime", record.created)
    shown["properties"].pop("provisioningState", None)


def _show_service(_: Subscription, _r: Record, shown: dict[str, Any]) -> None:
    shown["properties"].pop("provisioningState", None)


async def _apply_account(subscription: Subscription, record: Record, old: dict[str, Any] | None) -> None:
    if old is None and record.body["kind"] in ("StorageV2", "BlobStorage", "BlockBlobStorage"):
        subscription.endpoints[record.id.key] = await subscription.blobs.open(record)


async def _remove_account(subscription: Subscription, record: Record) -> None:
    subscription.endpoints.pop(record.id.key, None)
    await subscription.blobs.close_account(record)


HOOKS = {
    ACCOUNTS: Hooks(accept=_accept_account, apply=_apply_account, remove=_remove_account, show=_show_account),
    BLOB_SERVICES: Hooks(show=_show_service),
    CONTAINERS: Hooks(
        accept=_accept_container, apply=_apply_container, remove=_remove_container, show=_show_container
    ),
    FILE_SERVICES: Hooks(show=_show_service),
    SHARES: Hooks(accept=_accept_share, show=_show_share),
}
