"""Storage accounts, containers and shares in the emulated resource manager."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.rehearsal import bodies
from tests.rehearsal.bodies import SUBNET_ID, VNET
from tests.rehearsal.doubles import BASE, Endpoint

ACCOUNT = "providers/Microsoft.Storage/storageAccounts/labstore1"
CONTAINERS = f"{ACCOUNT}/blobServices/default/containers"
FILES = "providers/Microsoft.Storage/storageAccounts/labfiles1"


def account(kind: str = "StorageV2", sku: str = "Standard_LRS", **properties: Any) -> dict[str, Any]:
    return {"location": "westeurope", "kind": kind, "sku": {"name": sku}, "properties": properties}


def settled(azure: Endpoint, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """A write, asked about by its ``Location`` until it has ended: status and body of the last answer."""
    status, answer, headers = azure.ask("PUT", path, body)
    while status == 202:
        status, answer, headers = azure.ask("GET", headers["Location"])
    return status, answer


@pytest.fixture
def group(azure: Endpoint) -> Endpoint:
    """A resource group with nothing in it."""
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
    return azure


def refusal(azure: Endpoint, path: str, body: dict[str, Any]) -> tuple[int, str]:
    status, answer = settled(azure, path, body)
    return status, answer["error"]["code"]


def test_an_account_has_endpoints_by_its_kind(group: Endpoint) -> None:
    status, made = settled(group, ACCOUNT, account(allowSharedKeyAccess=False))
    assert status == 200
    ends = made["properties"]["primaryEndpoints"]
    assert ends["blob"] == "https://labstore1.blob.core.windows.net/"
    assert made["properties"]["allowSharedKeyAccess"] is False
    assert settled(group, FILES, account("FileStorage", "Premium_LRS"))[0] == 200
    ends = group.ask("GET", FILES)[1]["properties"]["primaryEndpoints"]
    assert ends == {"file": "https://labfiles1.file.core.windows.net/"}


def test_what_a_put_leaves_out_stays(group: Endpoint) -> None:
    settled(group, ACCOUNT, account(minimumTlsVersion="TLS1_2"))
    settled(group, ACCOUNT, account(allowBlobPublicAccess=False))
    properties = group.ask("GET", ACCOUNT)[1]["properties"]
    assert (properties["minimumTlsVersion"], properties["allowBlobPublicAccess"]) == ("TLS1_2", False)


def test_the_name_is_one_for_all_of_azure(group: Endpoint) -> None:
    settled(group, ACCOUNT, account())
    other = BASE.replace("/lab", "/other")
    group.ask("PUT", other, {"location": "westeurope"})
    again = f"{other}/providers/Microsoft.Storage/storageAccounts/labstore1"
    assert refusal(group, again, account()) == (409, "StorageAccountAlreadyTaken")
    group.subscription.taken_names.add("labfiles1")
    assert refusal(group, FILES, account()) == (409, "StorageAccountAlreadyTaken")


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"{ACCOUNT[:-9]}Lab-Store", account(), 400, "AccountNameInvalid"),
        (ACCOUNT, account("FileStorage"), 400, "InvalidRequestPropertyValue"),
        (ACCOUNT, {"location": "westeurope", "sku": {"name": "Standard_LRS"}}, 400, "InvalidRequestContent"),
        (ACCOUNT, account(allowBlobPublicAcess=False), 400, "InvalidRequestContent"),
        (
            ACCOUNT,
            account(networkAcls={"defaultAction": "Deny", "ipRules": [{"value": "10.0.0.1"}]}),
            400,
            "InvalidValuesForRequestedNetworkAcls",
        ),
        (
            ACCOUNT,
            account(networkAcls={"defaultAction": "Deny", "virtualNetworkRules": [{"id": SUBNET_ID}]}),
            400,
            "NetworkAclsValidationFailure",
        ),
    ],
)
def test_accounts_that_cannot_be_are_refused(
    group: Endpoint, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    assert refusal(group, path, body) == (status, code)
    assert group.ask("GET", f"{BASE}/resources")[1]["value"] == []


def test_a_subnet_needs_the_service_endpoint_and_is_not_held_by_the_rule(group: Endpoint) -> None:
    group.settle("PUT", VNET, bodies.vnet())
    ruled = account(networkAcls={"defaultAction": "Deny", "virtualNetworkRules": [{"id": SUBNET_ID}]})
    status, answer = settled(group, ACCOUNT, ruled)
    assert (status, answer["error"]["code"]) == (400, "NetworkAclsValidationFailure")
    assert "SubnetsHaveNoServiceEndpointsConfigured" in answer["error"]["message"]
    group.settle("PUT", VNET, bodies.vnet(serviceEndpoints=[{"service": "Microsoft.Storage"}]))
    assert settled(group, ACCOUNT, ruled)[0] == 200
    assert group.settle("DELETE", SUBNET_ID)["status"] == "Succeeded"


def test_what_azure_never_changes_on_an_account(group: Endpoint) -> None:
    settled(group, ACCOUNT, account(encryption={"requireInfrastructureEncryption": True}))
    changed = account(encryption={"requireInfrastructureEncryption": False})
    assert refusal(group, ACCOUNT, changed) == (409, "PropertyChangeNotAllowed")
    assert refusal(group, ACCOUNT, account("BlobStorage")) == (409, "PropertyChangeNotAllowed")


def test_containers_come_and_go_with_their_account(group: Endpoint) -> None:
    status, answer, _ = group.ask("PUT", f"{CONTAINERS}/data", {})
    assert (status, answer["error"]["code"]) == (404, "ParentResourceNotFound")
    settled(group, ACCOUNT, account())
    status, made, _ = group.ask("PUT", f"{CONTAINERS}/data", {"properties": {"publicAccess": "None"}})
    assert (status, made["id"]) == (201, f"{BASE}/{CONTAINERS}/data")
    assert [c["name"] for c in group.ask("GET", CONTAINERS)[1]["value"]] == ["data"]
    assert group.ask("PUT", f"{CONTAINERS}/Data_1", {})[1]["error"]["code"] == "InvalidResourceName"
    public = {"properties": {"publicAccess": "Blob"}}
    assert group.ask("PUT", f"{CONTAINERS}/web", public)[1]["error"]["code"] == "PublicAccessNotPermitted"
    group.settle("DELETE", ACCOUNT)
    assert group.ask("GET", f"{CONTAINERS}/data")[0] == 404


def test_the_blob_service_is_there_with_its_account(group: Endpoint) -> None:
    settled(group, ACCOUNT, account())
    service = f"{ACCOUNT}/blobServices/default"
    assert group.ask("GET", service)[1]["name"] == "default"
    assert group.ask("PUT", service, {"properties": {"isVersioningEnabled": True}})[0] == 200
    assert group.ask("GET", service)[1]["properties"]["isVersioningEnabled"] is True
    assert group.ask("DELETE", service)[0] == 405


def test_only_premium_file_storage_has_nfs_shares(group: Endpoint) -> None:
    settled(group, ACCOUNT, account())
    settled(group, FILES, account("FileStorage", "Premium_LRS"))
    share = {"properties": {"enabledProtocols": "NFS", "shareQuota": 100}}
    shares = "fileServices/default/shares/shared"
    assert (
        group.ask("PUT", f"{ACCOUNT}/{shares}", share)[1]["error"]["code"] == "FeatureNotSupportedForAccount"
    )
    assert group.ask("PUT", f"{FILES}/{shares}", share)[0] == 201
    change = {"properties": {"enabledProtocols": "SMB"}}
    assert group.ask("PUT", f"{FILES}/{shares}", change)[1]["error"]["code"] == "PropertyChangeNotAllowed"
    made = group.ask("PUT", f"{FILES}/blobServices/default/containers/data", {})
    assert made[1]["error"]["code"] == "FeatureNotSupportedForAccount"


def test_keys_are_two_and_stay(group: Endpoint) -> None:
    settled(group, ACCOUNT, account())
    keys = group.ask("POST", f"{ACCOUNT}/listKeys")[1]["keys"]
    assert [k["keyName"] for k in keys] == ["key1", "key2"]
    assert keys[0]["value"] != keys[1]["value"]
    assert group.ask("POST", f"{ACCOUNT}/listKeys")[1]["keys"] == keys


def test_an_account_without_a_data_plane_is_said_to_have_none(
    group: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rehearsal.storage"):
        settled(group, ACCOUNT, account())
    assert "labstore1 has no data plane here: Azurite is not installed" in caplog.text


def test_the_account_goes_with_its_group(group: Endpoint) -> None:
    settled(group, ACCOUNT, account())
    group.ask("PUT", f"{CONTAINERS}/data", {})
    group.clients().resources.resource_groups.begin_delete("lab").result(30)
    assert group.subscription.resources == {}
