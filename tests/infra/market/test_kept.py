"""What Azure says of stored data, and Pulumi's state of its group."""

from __future__ import annotations

import pytest

from infra.market.kept import Kept, is_remembered, kept_data
from infra.naming import storage_name
from infra.refusals import AzureRefused
from tests.infra.azure_answers import SUBSCRIPTION, Azure, error, group, resource

GROUP = "ranklift-dev-data"
OWN = resource("Microsoft.Storage/storageAccounts", storage_name("dev", SUBSCRIPTION, "storage"), GROUP)
NFS = resource("Microsoft.Storage/storageAccounts", storage_name("dev", SUBSCRIPTION, "nfs"), GROUP)


def test_the_group_is_named_with_what_is_in_it_and_the_account_of_the_blobs() -> None:
    azure = Azure(groups=[group(GROUP)], resources=[NFS, OWN])
    assert kept_data(azure.rest, SUBSCRIPTION, "dev") == Kept(
        group=GROUP, things=tuple(f"{one['type']} {one['name']}" for one in (NFS, OWN)), account=OWN["id"]
    )
    azure = Azure(groups=[group(GROUP, state="Deleting")])
    assert kept_data(azure.rest, SUBSCRIPTION, "dev") == Kept(group=GROUP, things=(), deleting=True)


@pytest.mark.parametrize("groups", [[], [group()], [group(GROUP, stack=None)], [group(GROUP, stack="Dev")]])
def test_what_is_not_the_stacks_is_none_of_its_data(groups: list[dict[str, object]]) -> None:
    assert kept_data(Azure(groups=groups).rest, SUBSCRIPTION, "dev") is None


def test_an_error_is_an_error() -> None:
    azure = Azure(instead={"resourcegroups": error(500, "InternalError")})
    with pytest.raises(AzureRefused, match="InternalError"):
        kept_data(azure.rest, SUBSCRIPTION, "dev")


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
