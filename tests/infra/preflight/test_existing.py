"""What Azure says of a stack's groups, and whether Pulumi's state has them."""

from __future__ import annotations

import pytest

from infra.arm.errors import AzureRefused
from infra.naming import CONTAINERS, own_uuid, storage_name
from infra.preflight.existing import Kept, group_there, is_remembered, rights_there
from tests.infra.azure_answers import SUBSCRIPTION, Azure, error, group, resource

GROUP = "ranklift-dev-data"
OWN = resource("Microsoft.Storage/storageAccounts", storage_name("dev", SUBSCRIPTION, "storage"), GROUP)
NFS = resource("Microsoft.Storage/storageAccounts", storage_name("dev", SUBSCRIPTION, "nfs"), GROUP)


def test_the_group_is_named_with_what_is_in_it_and_the_account_of_the_blobs() -> None:
    azure = Azure(groups=[group(GROUP)], resources=[NFS, OWN])
    assert group_there(azure.rest, SUBSCRIPTION, "dev", GROUP) == Kept(
        group=GROUP,
        things=tuple(f"{one['type']} {one['name']}" for one in (NFS, OWN)),
        account=OWN["id"],
        owner="dev",
    )
    azure = Azure(groups=[group(GROUP, state="Deleting")])
    assert group_there(azure.rest, SUBSCRIPTION, "dev", GROUP) == Kept(
        group=GROUP, things=(), deleting=True, owner="dev"
    )


def test_a_group_that_is_not_there_is_none() -> None:
    assert group_there(Azure(groups=[group()]).rest, SUBSCRIPTION, "dev", GROUP) is None


@pytest.mark.parametrize("stack", [None, "Dev"])
def test_whose_the_group_is_stands_in_its_tag(stack: str | None) -> None:
    azure = Azure(groups=[group(GROUP, stack=stack)])
    found = group_there(azure.rest, SUBSCRIPTION, "dev", GROUP)
    assert found is not None
    assert found.owner == stack


ACCOUNT = "/subscriptions/s-2/resourceGroups/corp/providers/Microsoft.Storage/storageAccounts/corpdata"
RIGHT = own_uuid("dev", SUBSCRIPTION, "results-right")


def test_rights_on_a_given_account_are_found_by_the_names_that_the_program_gives_them() -> None:
    azure = Azure(
        details={f"/containers/results/providers/Microsoft.Authorization/roleAssignments/{RIGHT}": {}}
    )
    azure.instead["containers/data"] = error(404, "RoleAssignmentNotFound")
    (found,) = rights_there(azure.rest, SUBSCRIPTION, "dev", ACCOUNT)
    assert found.startswith(f"{ACCOUNT}/blobServices/default/containers/results/")
    assert found.endswith(RIGHT)
    azure.instead["containers/data"] = error(500, "InternalError")
    with pytest.raises(AzureRefused, match="InternalError"):
        rights_there(azure.rest, SUBSCRIPTION, "dev", ACCOUNT)
    assert CONTAINERS == ("data", "results")


@pytest.mark.parametrize("purpose", ["container-registry", "container-repositories"])
def test_the_rights_on_a_given_registry_are_found_too(purpose: str) -> None:
    registry = "/subscriptions/s-2/resourceGroups/corp/providers/Microsoft.ContainerRegistry/registries/corp"
    right = own_uuid("dev", SUBSCRIPTION, f"{purpose}-right")
    there = f"{registry}/providers/Microsoft.Authorization/roleAssignments/{right}"
    azure = Azure(details={there: {}})
    for other in {"container-registry", "container-repositories"} - {purpose}:
        azure.instead[own_uuid("dev", SUBSCRIPTION, f"{other}-right")] = error(404, "RoleAssignmentNotFound")
    assert rights_there(azure.rest, SUBSCRIPTION, "dev", None, registry) == (there,)


def test_pulumi_knows_the_rights_that_it_has_given_and_was_giving() -> None:
    began = {"type": "azure-native:authorization:RoleAssignment", "inputs": {"roleAssignmentName": RIGHT}}
    assert is_remembered({"deployment": {"pending_operations": [{"resource": began}]}}, RIGHT)
    given = {"id": f"{ACCOUNT}/providers/Microsoft.Authorization/roleAssignments/{RIGHT}"}
    assert is_remembered({"deployment": {"resources": [given]}}, RIGHT)
    assert not is_remembered({}, RIGHT)


def test_an_error_is_an_error() -> None:
    azure = Azure(instead={"resourcegroups": error(500, "InternalError")})
    with pytest.raises(AzureRefused, match="InternalError"):
        group_there(azure.rest, SUBSCRIPTION, "dev", GROUP)


def test_pulumi_knows_what_it_has_made_and_what_it_was_making() -> None:
    began = {
        "type": "azure-native:resources:ResourceGroup",
        "inputs": {"resourceGroupName": GROUP},
    }
    assert is_remembered({"deployment": {"pending_operations": [{"resource": began}]}}, GROUP)
    assert is_remembered({"deployment": {"resources": [{"id": group(GROUP.upper())["id"]}]}}, GROUP)
    inside = {"deployment": {"resources": [{"id": OWN["id"]}, {"type": "pulumi:pulumi:Stack"}]}}
    assert not is_remembered(inside, GROUP)
    assert not is_remembered({"deployment": None}, GROUP)
