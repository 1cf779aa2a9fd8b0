"""What is found over the whole subscription: by tag, by type, and in which form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rehearsal.arm.storage.test_accounts import ACCOUNT, CONTAINERS, account, settled
from tests.rehearsal.doubles import BASE, SUBSCRIPTION_ID, Endpoint

HERE = {"location": "westeurope"}
WHOLE = f"/subscriptions/{SUBSCRIPTION_ID}"
NIC_LIKE = "providers/Microsoft.Network/networkSecurityGroups"


@pytest.fixture
def tagged(azure: Endpoint) -> Endpoint:
    """Two groups: what is of stack ``a`` lies in both."""
    other = BASE.replace("/lab", "/lab-data")
    assert azure.ask("PUT", BASE, {**HERE, "tags": {"ranklift-stack": "a"}})[0] == 201
    assert azure.ask("PUT", other, {**HERE, "tags": {"ranklift-stack": "b"}})[0] == 201
    for path, tags in (
        (f"{BASE}/{NIC_LIKE}/one", {"ranklift-stack": "a"}),
        (f"{BASE}/{NIC_LIKE}/two", {"ranklift-stack": "b"}),
        (f"{BASE}/{NIC_LIKE}/bare", {}),
        (f"{other}/{NIC_LIKE}/three", {"Ranklift-Stack": "a"}),
    ):
        assert azure.settle("PUT", path, {**HERE, "tags": tags})["status"] == "Succeeded"
    return azure


def names(azure: Endpoint, path: str, result: str) -> list[str]:
    found = azure.ask("GET", f"{path}?$filter={result}&api-version=2021-04-01")[1]
    return [one["name"] for one in found["value"]]


def test_a_tag_is_found_over_all_groups(tagged: Endpoint) -> None:
    result = "tagName eq 'ranklift-stack' and tagValue eq 'a'"
    assert names(tagged, f"{WHOLE}/resources", result) == ["one", "three"]
    assert names(tagged, f"{WHOLE}/resourcegroups", result) == ["lab"]
    assert names(tagged, f"{BASE}/resources", result) == ["one"]
    assert names(tagged, f"{WHOLE}/resources", "tagName eq 'ranklift-stack'") == ["one", "two", "three"]
    # Values are compared with their case, names without.
    assert names(tagged, f"{WHOLE}/resources", result.replace("'a'", "'A'")) == []


def test_types_are_found_without_regard_to_case(tagged: Endpoint) -> None:
    result = "resourceType eq 'microsoft.network/NETWORKSECURITYGROUPS'"
    assert len(names(tagged, f"{WHOLE}/resources", result)) == 4
    assert names(tagged, f"{WHOLE}/resources", "resourceType eq 'Microsoft.Network/natGateways'") == []


def test_a_filter_that_is_not_known_is_refused(tagged: Endpoint) -> None:
    _, shown, _ = tagged.ask("GET", f"{WHOLE}/resources?$filter=name eq 'x'&api-version=2021-04-01")
    assert shown["error"]["code"] == "InvalidFilterInQueryString"


def test_times_are_told_when_they_are_asked_for(tagged: Endpoint) -> None:
    def first(more: str) -> dict[str, Any]:
        found = tagged.ask("GET", f"{WHOLE}/resources?api-version=2021-04-01{more}")[1]["value"][0]
        return dict(found)

    assert {"createdTime", "provisioningState"}.isdisjoint(first(""))
    assert first("&$expand=createdTime,provisioningState")["createdTime"].endswith("Z")
    assert first("&$expand=createdTime")["tags"] == {"ranklift-stack": "a"}


def test_only_what_has_a_place_of_its_own_is_listed(azure: Endpoint) -> None:
    azure.ask("PUT", BASE, HERE)
    settled(azure, ACCOUNT, account())
    azure.ask("PUT", f"{CONTAINERS}/data", {})
    listed = azure.ask("GET", f"{WHOLE}/resources")[1]["value"]
    assert [one["type"] for one in listed] == ["Microsoft.Storage/storageAccounts"]
    assert (listed[0]["kind"], listed[0]["sku"]) == ("StorageV2", {"name": "Standard_LRS"})


def test_microsofts_client_finds_by_tag(tagged: Endpoint) -> None:
    resources = tagged.clients().resources.resources
    result = "tagName eq 'ranklift-stack' and tagValue eq 'b'"
    assert [one.name for one in resources.list(filter=result)] == ["two"]
