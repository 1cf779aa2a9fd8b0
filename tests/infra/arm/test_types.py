"""Azure's types: what names a resource of each, and its API version."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import pytest

from infra.arm.types import REMOVABLE, api_version, resource_id


@pytest.mark.parametrize("kind", REMOVABLE)
def test_everything_removable_is_named_by_inputs_that_pulumi_has(kind: str) -> None:
    _, module, name = kind.split(":")
    leaf = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name.replace("IPA", "IpA")).lower()
    made = getattr(import_module(f"pulumi_azure_native.{module}.{leaf}"), name)
    inputs = {word.replace("_", "") for word in inspect.signature(made._internal_init).parameters}
    where = "scope" if module == "authorization" else "resourceGroupName"
    assert {name.lower() for name in (where, *re.findall(r"{(\w+)}", REMOVABLE[kind]))} <= inputs


def test_extensions_and_children_have_the_ids_that_azure_gives_them() -> None:
    scope = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set"
    assignment = {"scope": scope, "roleAssignmentName": "a-1", "principalId": "-"}
    assert resource_id("s", "azure-native:authorization:RoleAssignment", assignment) == (
        f"{scope}/providers/Microsoft.Authorization/roleAssignments/a-1"
    )
    container = {"resourceGroupName": "g", "accountName": "acc", "containerName": "data"}
    assert resource_id("s", "azure-native:storage:BlobContainer", container) == (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/acc"
        "/blobServices/default/containers/data"
    )


@pytest.mark.parametrize(
    ("azure_type", "version"),
    [
        ("Microsoft.Compute/virtualMachineScaleSets/nodes", "2024-11-01"),
        ("microsoft.compute/skus", "2021-07-01"),
        ("Microsoft.Network/privateDnsZones/virtualNetworkLinks", "2024-06-01"),
        ("Microsoft.Network/privateEndpoints", "2024-05-01"),
    ],
)
def test_a_type_has_its_providers_version_unless_it_has_one_of_its_own(azure_type: str, version: str) -> None:
    assert api_version(azure_type) == version


def test_a_provider_that_is_not_used_has_no_version() -> None:
    with pytest.raises(KeyError):
        api_version("Microsoft.Sql/servers")
