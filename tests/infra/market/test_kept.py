"""What Azure says of a stack's groups, and whether Pulumi's state has them."""

from __future__ import annotations

import pytest

from infra.market.kept import Kept, group_there, is_remembered
from infra.naming import storage_name
from infra.refusals import AzureRefused
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
