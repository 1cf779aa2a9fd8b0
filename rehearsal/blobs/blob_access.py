"""Who may do what with blobs: the account's firewall, then the sender's rights. Azurite checks neither.

Codes and messages: learn.microsoft.com rest/api/storageservices/common-rest-api-error-codes, sas-error-codes
and blob-service-error-codes; which of them is for what: learn.microsoft.com troubleshoot/azure/azure-storage/
blobs/authentication/storage-troubleshoot-403-errors. The firewall comes first: learn.microsoft.com
storage/common/storage-network-security.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from rehearsal.arm.auth.roles import allows
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.subscription import OPERATOR, Subscription
from rehearsal.blobs.blob_request import HOST_SUFFIX, BlobRequest
from rehearsal.imds.tokens import TENANT_ID, Token

__all__ = ["AUDIENCE", "BlobError", "Source", "busy", "check_firewall", "check_key", "check_right", "denied"]

AUDIENCE = "https://storage.azure.com"


class BlobError(Exception):
    """A refusal of a blob service."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        self.status, self.code, self.message, self.headers = status, code, message, headers
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a request comes from."""

    address: str
    subnet: str = ""
    """Id of the sender's subnet; empty outside of virtual networks."""
    endpoint_of: str = ""
    """Key of the account whose private endpoint it came by; empty for the public endpoint."""


def denied() -> BlobError:
    """Return the refusal of an identity without the right."""
    problem = "This request is not authorized to perform this operation using this permission."
    return BlobError(403, "AuthorizationPermissionMismatch", problem)


def busy(seconds: int) -> BlobError:
    """Return the refusal of a service that has too much to do."""
    return BlobError(503, "ServerBusy", "The server is busy.", **{"Retry-After": str(seconds)})


def check_firewall(subscription: Subscription, account: Record, source: Source) -> None:
    """Refuse a sender that the account's network rules do not admit."""
    refusal = BlobError(
        403, "AuthorizationFailure", "This request is not authorized to perform this operation."
    )
    if source.endpoint_of:
        if source.endpoint_of != account.id.key:
            raise refusal  # an endpoint leads to its own account alone
        return
    if account.properties.get("publicNetworkAccess", "Enabled") != "Enabled":
        raise refusal
    rules = account.properties.get("networkAcls") or {}
    if rules.get("defaultAction", "Allow") == "Allow":
        return
    if source.subnet:
        subnets = (rule["id"].lower() for rule in rules.get("virtualNetworkRules") or ())
        admitted = source.subnet.lower() in subnets and _has_service_endpoint(subscription, source.subnet)
    else:
        sender = ipaddress.IPv4Address(source.address)
        admitted = any(sender in ipaddress.IPv4Network(r["value"]) for r in rules.get("ipRules") or ())
    if not admitted:
        raise refusal


def _has_service_endpoint(subscription: Subscription, subnet: str) -> bool:
    rid = ResourceId.parse(subnet)
    if rid is None or not subscription.exists(rid):
        return False
    offered = subscription.element(rid).get("properties", {}).get("serviceEndpoints") or ()
    return any(str(one.get("service", "")).startswith("Microsoft.Storage") for one in offered)


def check_key(account: Record, query: Mapping[str, str], authorization: str) -> None:
    """Refuse what the account's keys signed where they are off, and a request without any credential."""
    signed = "sig" in query and "skoid" not in query
    if signed or authorization.lower().startswith("sharedkey"):
        if account.properties.get("allowSharedKeyAccess") is False:
            problem = "Key based authentication is not permitted on this storage account."
            raise BlobError(403, "KeyBasedAuthenticationNotPermitted", problem)
    elif not authorization and "sig" not in query and not account.properties.get("allowBlobPublicAccess"):
        problem = "Public access is not permitted on this storage account."
        raise BlobError(409, "PublicAccessNotPermitted", problem)


def check_right(
    subscription: Subscription, account: Record, request: BlobRequest, principal: Token | str | None
) -> str:
    """Return the object id of who may do what ``request`` asks for.

    ``principal`` is an identity's token, the object id by which a user delegation SAS was made, or None for a
    token that is not known. Owning a subscription, as the operator does, gives no right on data
    (learn.microsoft.com storage/blobs/authorize-access-azure-active-directory).
    """
    host = f"https://{account.id.name}{HOST_SUFFIX}"
    if principal is None or (
        isinstance(principal, Token) and principal.audience.rstrip("/") not in (AUDIENCE, host)
    ):
        where = f"authorization_uri=https://login.microsoftonline.com/{TENANT_ID}/oauth2/authorize"
        problem = (
            "Server failed to authenticate the request. Please refer to the information in the "
            "www-authenticate header."
        )
        header = {"WWW-Authenticate": f"Bearer {where} resource_id={AUDIENCE}"}
        raise BlobError(401, "InvalidAuthenticationInfo", problem, **header)
    who = principal.identity.principal_id if isinstance(principal, Token) else principal
    scope = account.id.child("blobServices", "default")
    if request.container:
        scope = scope.child("containers", request.container)
    owns = who == OPERATOR and not request.is_data
    if not owns and not allows(subscription, who, request.action, scope, data=request.is_data):
        raise denied()
    return who
