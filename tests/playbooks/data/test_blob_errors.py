"""What storage refuses, in the operator's words: the address, Azure's code, the remedy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
)

from launch.data.data_spec import BlobAddress
from launch.errors import GiveUpError, InputError, RankliftError, RetryError
from playbooks.data.blob_errors import blob_errors

ADDRESS = BlobAddress("https://acme.blob.core.windows.net", "data", "my set")
SIGNED = replace(ADDRESS, sas="sig=SECRET")


def answered(code: str, status: int) -> HttpResponseError:
    error = cast(
        "Any", HttpResponseError(response=cast("Any", SimpleNamespace(status_code=status, reason="Busy")))
    )
    error.error_code = code
    return cast("HttpResponseError", error)


def raised(error: Exception, address: BlobAddress = ADDRESS) -> RankliftError:
    with pytest.raises(RankliftError) as caught, blob_errors(address):
        raise error
    assert "SECRET" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (answered("AuthorizationPermissionMismatch", 403), GiveUpError, "ranklift:dataOperators"),
        (answered("AuthorizationFailure", 403), GiveUpError, "ranklift:sshFrom"),
        (answered("InvalidAuthenticationInfo", 401), GiveUpError, "az login --tenant"),
        (answered("ContainerNotFound", 404), InputError, "has no container data"),
        (answered("BlobNotFound", 404), InputError, "is not there; see `fab data.ls`"),
        (answered("ServerBusy", 503), RetryError, "storage answered ServerBusy Busy; repeat the command"),
        (answered("", 500), RetryError, "storage answered HTTP 500"),
        (ClientAuthenticationError("no login\nmore"), GiveUpError, "no sign-in at Azure (no login)"),
        (ServiceRequestError("getaddrinfo"), RetryError, "does not answer (getaddrinfo)"),
        (AzureError("odd\nmore"), GiveUpError, "data/my%20set: odd"),
        (PermissionError(13, "Permission denied", "/x"), GiveUpError, "/x: Permission denied"),
    ],
)
def test_a_refusal_names_the_address_and_the_remedy(error: Exception, kind: type, words: str) -> None:
    found = raised(error)
    assert isinstance(found, kind)
    assert words in str(found)


@pytest.mark.parametrize("code", ["AuthenticationFailed", "AuthorizationPermissionMismatch"])
def test_what_a_sas_does_not_allow_is_not_a_missing_role(code: str) -> None:
    assert f"data/my%20set: {code}: the SAS of --sas-file has expired, or lacks a right" in str(
        raised(answered(code, 403), SIGNED)
    )


def test_a_missing_role_may_be_a_missing_container() -> None:
    other = BlobAddress(ADDRESS.account_url, "dta", "x")
    error = answered("AuthorizationPermissionMismatch", 403)
    assert "container dta is not there, or you lack the role" in str(raised(error, other))
    assert "is not there" not in str(raised(error))
