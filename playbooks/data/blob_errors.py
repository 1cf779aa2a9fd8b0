"""Errors of storage in the operator's words: what was refused, by whom, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from infra.naming import CONTAINERS
from launch.data.data_spec import BlobAddress
from launch.errors import GiveUpError, InputError, RankliftError, RetryError

__all__ = ["blob_errors", "error_code"]

_ROLE = (
    "you lack the role Storage Blob Data Contributor, which neither Owner nor Contributor includes: add your "
    "object id (`az ad signed-in-user show --query id -o tsv`) to ranklift:dataOperators and run `fab up`; a "
    "new role takes some minutes"
)
_SAS = (
    "the SAS of --sas-file has expired, or lacks a right: all need read and list, `fab data.put` also write, "
    "`fab data.rm` delete"
)
_FIREWALL = (
    "the account's firewall does not let this machine in: put its address into ranklift:sshFrom and run "
    "`fab up`; with ranklift:storage privateEndpoint, run the command on a machine of that network"
)
_REMEDIES = {
    "AuthorizationPermissionMismatch": _ROLE,
    "AuthorizationFailure": _FIREWALL,
    "PublicAccessNotPermitted": _ROLE,
    "KeyBasedAuthenticationNotPermitted": "sign in with `az login`; account keys are switched off",
    "InvalidAuthenticationInfo": "sign in to the account's own tenant with `az login --tenant TENANT`",
    "AccountIsDisabled": "the account is switched off; see the portal",
}
"""By Azure's error code (learn.microsoft.com rest/api/storageservices blob-service-error-codes)."""
_RIGHTS = (
    *("AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch"),
    *("AuthorizationServiceMismatch", "AuthorizationProtocolMismatch"),
)
"""What a SAS may lack."""
_MISSING = ("ContainerNotFound", "BlobNotFound", "ContainerBeingDeleted")


def error_code(error: object) -> str:
    """Return Azure's code of an SDK's error; empty without one."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")  # an enum for the codes that the SDK knows


@contextmanager
def blob_errors(address: BlobAddress) -> Iterator[None]:
    """Raise errors of the Azure SDK in the block as ours, which name ``address``."""
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )

    try:
        yield
    except HttpResponseError as error:
        if isinstance(error, ClientAuthenticationError) and not error_code(error):  # before storage was asked
            text = str(error).splitlines()[0]
            raise GiveUpError(f"{address.url}: no sign-in at Azure ({text}); run `az login`") from None
        raise _refused(address, error) from None
    except (ServiceRequestError, ServiceResponseError) as error:
        text = str(error).splitlines()[0]
        raise RetryError(
            f"{address.url} does not answer ({text}); if it has a private endpoint, run the command on a "
            "machine of that network, else repeat it: it goes on where it stopped"
        ) from None
    except AzureError as error:
        raise GiveUpError(f"{address.url}: {str(error).splitlines()[0]}") from None
    except RankliftError:
        raise
    except OSError as error:
        raise GiveUpError(f"{error.filename or address.url}: {error.strerror or error}") from None


def _refused(address: BlobAddress, error: object) -> RankliftError:
    code = error_code(error) or f"HTTP {getattr(error, 'status_code', None)}"
    if code in _MISSING:
        what = f"account {address.account_url} has no container {address.container}"
        return InputError(
            "data", address.url, what if "Container" in code else "is not there", "see `fab data.ls`"
        )
    if address.sas and code in ("AuthenticationFailed", *_RIGHTS):
        return GiveUpError(f"{address.url}: {code}: {_SAS}")
    if remedy := _REMEDIES.get(code):
        if remedy is _ROLE and address.container not in CONTAINERS:
            remedy = f"container {address.container} is not there, or {remedy}"
        return GiveUpError(f"{address.url}: {code}: {remedy}")
    reason = getattr(error, "reason", "") or ""
    return RetryError(
        f"{address.url}: storage answered {code} {reason}; repeat the command: it goes on where it stopped"
    )
