"""A request to a blob service: its account, container and blob, and the right that Azure wants for it.

Rights as in learn.microsoft.com rest/api/storageservices/authorize-with-azure-active-directory, "Permissions
for Blob service operations".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

__all__ = ["HOST_SUFFIX", "BlobRequest", "read_request"]

HOST_SUFFIX = ".blob.core.windows.net"
_LOOPBACK = ("127.0.0.1", "localhost")
_SERVICES = "Microsoft.Storage/storageAccounts/blobServices"
_CONTAINERS = f"{_SERVICES}/containers"
_BLOBS = f"{_CONTAINERS}/blobs"
_READS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class BlobRequest:
    """What a request is about."""

    account: str
    container: str
    """Empty for the account itself."""
    blob: str
    """Empty for the container itself."""
    action: str
    is_data: bool
    """Whether the action is one on data, which roles list apart."""


def read_request(method: str, host: str, path: str, query: Mapping[str, str]) -> BlobRequest | None:
    """Return what a request is about; None for another host, or an operation without a known right.

    ``path`` is as it was sent. On the loopback interface the account is the path's first part, as in Azurite.

    >>> found = read_request("GET", "lab.blob.core.windows.net", "/data/a%20b/c", {})
    >>> (found.account, found.container, found.blob), found.action.rpartition("/")[2]
    (('lab', 'data', 'a b/c'), 'read')
    >>> read_request("GET", "127.0.0.1:99", "/lab/data", {"comp": "list"}).container
    'data'
    >>> read_request("GET", "example.org", "/lab/data", {})
    """
    name = host.partition(":")[0].lower()
    parts = unquote(path).lstrip("/").split("/", 2 if name in _LOOPBACK else 1)
    if name.endswith(HOST_SUFFIX):
        parts.insert(0, name.removesuffix(HOST_SUFFIX))
    elif name not in _LOOPBACK:
        return None
    account, container, blob = [*parts, "", ""][:3]
    right = _right(method, container, blob, query)
    return BlobRequest(account, container, blob, *right) if account and right is not None else None


def _right(method: str, container: str, blob: str, query: Mapping[str, str]) -> tuple[str, bool] | None:
    part = query.get("comp", "").lower()
    if part == "batch":
        return None  # its parts would need a check each
    if not container:
        return _of_account(method, part)
    if not blob:
        if part == "list":
            return f"{_BLOBS}/read", True
        verb = "read" if method in _READS else "delete" if method == "DELETE" else "write"
        return f"{_CONTAINERS}/{verb}", False
    tags = "tags/" if part == "tags" else ""
    if method in _READS or part == "query":
        return f"{_BLOBS}/{tags}read", True
    return f"{_BLOBS}/{tags}{'delete' if method == 'DELETE' else 'write'}", True


def _of_account(method: str, part: str) -> tuple[str, bool] | None:
    if part == "list":
        return f"{_CONTAINERS}/read", False
    if part == "userdelegationkey":
        return f"{_SERVICES}/generateUserDelegationKey/action", False
    if part == "properties":
        return f"{_SERVICES}/{'read' if method in _READS else 'write'}", False
    return None
