"""Storage accounts: their names, firewall rules, keys and endpoints."""

from __future__ import annotations

import base64
import hashlib
import re

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks, Work
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.services import Services

__all__ = ["ENTRIES", "SERVICES", "account_key", "services_of"]

_ACCOUNTS = ResourceType(
    "Microsoft.Storage/storageAccounts",
    "storage.StorageAccountCreateParameters",
    ("accountName",),
    patch_model="storage.StorageAccountUpdateParameters",
    shown_model="storage.StorageAccount",
    immutable=(
        "kind",
        "extendedLocation",
        "isHnsEnabled",
        "enableNfsV3",
        "encryption.requireInfrastructureEncryption",
    ),
    loose=("networkAcls",),
    sync_later=True,
    created=202,
)
_NAME = re.compile(r"[a-z0-9]{3,24}")
SERVICES = {"StorageV2": ("blob", "dfs", "file", "queue", "table", "web"), "FileStorage": ("file",)}
"""Services by the kind of an account."""
_PREMIUM_FILES = ("Premium_LRS", "Premium_ZRS", "PremiumV2_LRS", "PremiumV2_ZRS")


def account_key(record: Record, name: str) -> str:
    """Return the access key ``name`` of a storage account, the same for as long as the account exists."""
    seed = f"{record.guid} {name}".encode()
    return base64.b64encode(hashlib.sha512(seed).digest()).decode()


def services_of(account: Record) -> tuple[str, ...]:
    """Return the services of an account: ``blob``, ``file`` ..."""
    return SERVICES.get(account.body["kind"], ("blob",))


class _AccountHooks(Hooks[Services]):
    """Blob services of accounts are processes of this machine, where Azurite is installed."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a name that is taken or malformed, a wrong SKU and wrong firewall rules."""
        if not _NAME.fullmatch(rid.name):
            raise ArmError(
                400,
                "AccountNameInvalid",
                f"{rid.name} is not a valid storage account name. Storage account name must be between 3 and "
                "24 characters in length and use numbers and lower-case letters only.",
            )
        elsewhere = [r for r in self.services.subscription.of_type(_ACCOUNTS.type) if r.id.key != rid.key]
        if rid.name in self.services.subscription.taken_names or any(
            r.id.name.lower() == rid.name.lower() for r in elsewhere
        ):
            problem = f"The storage account named {rid.name} is already taken."
            raise ArmError(409, "StorageAccountAlreadyTaken", problem, "StorageAccount")
        if body["kind"] == "FileStorage" and body["sku"]["name"] not in _PREMIUM_FILES:
            # The refusal is Azure's; its exact words for this pair are not known here.
            problem = f"The sku {body['sku']['name']} is not valid for kind FileStorage."
            raise ArmError(400, "InvalidRequestPropertyValue", problem, "sku.name")
        _check_rules(self.services.subscription, rid, body["properties"].get("networkAcls") or {})
        # What a PUT leaves out stays as it was.
        return {**body, "properties": {**(old or {}).get("properties", {}), **body["properties"]}}

    async def apply(self, record: Record, old: Body | None) -> None:
        if old is None and record.body["kind"] in ("StorageV2", "BlobStorage", "BlockBlobStorage"):
            await self.services.blobs.open(record)

    async def remove(self, record: Record) -> None:
        await self.services.blobs.close_account(record)

    def show(self, record: Record, shown: Body) -> None:
        services = services_of(record)
        ends = {s: f"https://{record.id.name}.{s}.core.windows.net/" for s in services}
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

    def act(self, rid: ResourceId, record: Record, action: str, body: Body) -> Work | Body | None:
        if action != "listkeys":
            return None
        return {
            "keys": [
                {
                    "keyName": name,
                    "value": account_key(record, name),
                    "permissions": "FULL",
                    "creationTime": record.created,
                }
                for name in ("key1", "key2")
            ]
        }


def _check_rules(subscription: Subscription, rid: ResourceId, rules: Body) -> None:
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


ENTRIES = ((_ACCOUNTS, _AccountHooks),)
