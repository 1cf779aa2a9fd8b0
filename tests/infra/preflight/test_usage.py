"""What is there because of a stack, and what it costs; nothing that no stack made."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.arm.errors import AzureRefused, NotSignedIn
from infra.preflight.billing import charge_of, details_path
from infra.preflight.meters import ADDRESS, NAT, NFS_SHARE
from infra.preflight.prices import MONTH_H
from infra.preflight.usage import GROUP, Account, account, find
from tests.infra import azure_answers
from tests.infra.azure_answers import (
    SUBSCRIPTION,
    Azure,
    address,
    error,
    forbidden,
    group,
    nat,
    price,
    resource,
    spot,
)

SET, MACHINE, DISK = (
    f"Microsoft.Compute/{one}" for one in ("virtualMachineScaleSets", "virtualMachines", "disks")
)
STORE = "Microsoft.Storage/storageAccounts"
NETWORK, NAT_KIND = "Microsoft.Network/virtualNetworks", "Microsoft.Network/natGateways"


def account_of(azure: Azure, stack: str | None = "dev", kept: tuple[str, ...] = ()) -> Account:
    return account(azure.rest, azure.rest, SUBSCRIPTION, stack, kept_groups=kept)


def names(found: Account) -> list[str]:
    return [one.name for one in found.things]


def test_what_carries_the_stacks_tag_is_found_in_every_group() -> None:
    azure = Azure(
        groups=[group(), group("elsewhere", None), group("ranklift-prod", "prod")],
        resources=[
            resource(NETWORK, "own"),
            resource("Microsoft.Network/publicIPAddresses", "stray", "elsewhere"),
            resource(NETWORK, "not-ours", "elsewhere", None),
            resource(NETWORK, "prods", "ranklift-prod", "prod"),
        ],
    )
    assert names(account_of(azure)) == ["ranklift-dev", "own", "stray"]
    assert names(account_of(azure, None)) == ["ranklift-dev", "ranklift-prod", "own", "stray", "prods"]
    assert names(account_of(azure, "test")) == []


def test_tags_are_compared_as_azure_does() -> None:
    found = find([], [group() | {"tags": {"Ranklift-Stack": "dev"}}, group("other", "Dev")], "dev")
    assert [one.name for one in found] == ["ranklift-dev"]


def test_what_others_put_into_a_stacks_group_is_told_apart_and_not_counted() -> None:
    azure = Azure(groups=[group()], resources=[resource(NAT_KIND, "theirs", stack=None)])
    found = account_of(azure)
    assert [one.name for one in found.others] == ["theirs"]
    assert [one.name for one in found.left] == ["ranklift-dev"]
    assert found.per_hour == 0
    assert not any("prices" in url for url in azure.asked)


def test_a_list_that_lags_behind_its_groups_does_not_count() -> None:
    assert account_of(Azure(groups=[], resources=[resource(NETWORK, "ghost")])).things == ()


def test_since_when_and_whether_it_goes() -> None:
    azure = Azure(
        groups=[group(state="Deleting")],
        resources=[
            resource(NETWORK, "a"),
            resource(NETWORK, "b", createdTime=None, provisioningState="Deleting"),
        ],
    )
    whole, first, second = account_of(azure).things
    assert (whole.created, whole.deleting) == (None, True)
    assert (first.created, first.deleting) == (datetime(2026, 3, 1, 9, 5, 7, 123456, UTC), False)
    assert (second.created, second.deleting) == (None, True)


def test_data_that_is_to_be_kept_is_not_left_over() -> None:
    azure = Azure(
        groups=[group("ranklift-dev-data")],
        resources=[
            resource(STORE, "rldev", "Ranklift-dev-DATA"),
            resource(STORE, "theirs", "ranklift-dev-data", None),
        ],
        details={"/shares": {"value": []}},
    )
    found = account_of(azure, kept=("ranklift-dev-data",))
    assert [one.name for one in found.kept] == ["ranklift-dev-data", "rldev"]
    assert found.left == ()
    assert [one.name for one in found.others] == ["theirs"]
    assert len(account_of(azure).left) == 2


# -- prices


def test_everything_costs_what_azure_says_it_is() -> None:
    azure = Azure(
        prices=[
            price(22.0),
            spot(4.0),
            nat(),
            address(),
            *_storage(),
            price(0.5, armSkuName="Standard_E8s_v5"),
        ],
        groups=[group()],
        resources=[
            resource(SET, "nodes"),
            resource(MACHINE, "server"),
            resource(DISK, "disk"),
            resource(STORE, "share"),
            resource(STORE, "blobs"),
            resource(NAT_KIND, "nat"),
            resource("Microsoft.Network/publicIPAddresses", "ip"),
            resource("Microsoft.Network/loadBalancers", "lb"),
            resource("Microsoft.Quantum/workspaces", "odd"),
        ],
        details={
            "/virtualMachineScaleSets/nodes": azure_answers.scale_set(3, priority="Spot"),
            "/virtualMachines/server": {"properties": {"hardwareProfile": {"vmSize": "Standard_E8s_v5"}}},
            "/disks/disk": {"sku": {"name": "Premium_LRS"}, "properties": {"diskSizeGB": 512}},
            "/share/fileServices/default/shares": {
                "value": [
                    {"properties": {"shareQuota": 1000, "enabledProtocols": "NFS"}},
                    {"properties": {"shareQuota": 5000, "enabledProtocols": "SMB"}},
                ]
            },
            "/blobs/fileServices/default/shares": {"value": []},
        },
    )
    found = {one.name: one for one in account_of(azure).things}
    costs = {name: one.per_hour for name, one in found.items()}
    assert costs == {
        "ranklift-dev": 0.0,
        "nodes": 12.0,
        "server": 0.5,
        "disk": pytest.approx(73.0 / MONTH_H),
        "share": pytest.approx(1000 * 0.146 / MONTH_H),
        "blobs": None,
        "nat": 0.045,
        "ip": 0.005,
        "lb": 0.0,
        "odd": None,
    }
    assert found["share"].per_month == pytest.approx(146.0)
    assert found["blobs"].per_month is None
    assert "billing unknown" in found["odd"].note
    assert account_of(azure).per_hour == pytest.approx(12.0 + 0.5 + 0.1 + 0.2 + 0.05)


def _storage() -> list[dict[str, object]]:
    disk = {"serviceName": "Storage", "productName": "Premium SSD Managed Disks", "meterName": "P20 LRS Disk"}
    share = {"serviceName": "Storage", "productName": "Premium Files", "meterName": NFS_SHARE.name}
    return [
        price(73.0, unitOfMeasure="1/Month", armSkuName="", **disk),
        price(0.146, unitOfMeasure="1 GiB/Month", armSkuName="", **share),
    ]


def test_a_set_without_nodes_costs_nothing() -> None:
    charge = charge_of(SET, azure_answers.scale_set(0))
    assert (charge.free, charge.size) == (True, None)


def test_what_could_not_be_asked_is_unknown_and_says_why() -> None:
    azure = Azure(
        groups=[group()],
        resources=[resource(SET, "nodes"), resource(NAT_KIND, "nat")],
        instead={
            "/virtualMachineScaleSets/": forbidden("Microsoft.Compute/virtualMachineScaleSets/read"),
            "/api/retail/prices": OSError(101, "Network is unreachable"),
        },
    )
    _, nodes, gateway = account_of(azure).things
    assert (nodes.per_hour, gateway.per_hour) == (None, None)
    assert "lacks the right" in nodes.note
    assert "Network is unreachable" in gateway.note


def test_a_meter_that_the_price_list_has_not_is_unknown() -> None:
    azure = Azure(prices=[], groups=[group()], resources=[resource(NAT_KIND, "nat")])
    assert [(one.per_hour, one.note) for one in account_of(azure).things[1:]] == [
        (None, "and by traffic: the price list has no entry")
    ]


def test_who_may_not_list_is_told_so() -> None:
    azure = Azure(instead={"/resourcegroups": error(400, "Odd")})
    with pytest.raises(AzureRefused, match="Odd"):
        account_of(azure)
    azure = Azure(
        groups=[group()], resources=[resource(SET, "n")], instead={"/virtualM": error(401, "Expired")}
    )
    with pytest.raises(NotSignedIn):
        account_of(azure)


@pytest.mark.parametrize("kind", [SET, MACHINE, DISK, STORE])
def test_details_are_asked_for_where_the_charge_needs_them(kind: str) -> None:
    path = details_path("/id", kind.lower())
    assert path is not None
    assert path[0].startswith("/id")
    assert charge_of(kind, None).size is None


def test_other_kinds_need_none() -> None:
    assert details_path("/id", NETWORK) is None
    assert charge_of(NAT_KIND, None).meter == NAT
    assert charge_of("Microsoft.Network/publicIPAddresses", None).meter == ADDRESS


STACKS = st.sampled_from(["dev", "prod", None])
PLACES = st.sampled_from(["one", "two", "three"])


@given(
    resources=st.lists(st.tuples(PLACES, STACKS), max_size=8),
    groups=st.dictionaries(PLACES, STACKS, max_size=3),
    stack=STACKS,
)
def test_a_thing_is_listed_once_and_only_if_its_or_its_groups_tag_says_so(
    resources: list[tuple[str, str | None]], groups: dict[str, str | None], stack: str | None
) -> None:
    entries = [resource(NETWORK, f"n{i}", place, owner) for i, (place, owner) in enumerate(resources)]
    found = find(entries, [group(name, owner) for name, owner in groups.items()], stack)
    ids = [one.id for one in found]
    assert len(ids) == len(set(ids))
    for one in found:
        mine = one.stack is not None and stack in (None, one.stack)
        lies = one.stack is None and groups.get(one.group) is not None and stack in (None, groups[one.group])
        assert mine or lies
        assert one.type == GROUP or one.group in groups
    for i, (place, owner) in enumerate(resources):
        if owner is not None and stack in (None, owner) and place in groups:
            assert any(one.name == f"n{i}" for one in found)


def test_azure_monitor_bills_the_workspace_by_use_and_nothing_else() -> None:
    workspace = charge_of("Microsoft.Monitor/accounts", None)
    assert (workspace.free, workspace.meter) == (False, None)
    assert workspace.note == "by samples sent and by queries"
    assert charge_of("Microsoft.Insights/dataCollectionRules", None).free
    assert charge_of("Microsoft.Insights/dataCollectionEndpoints", None).free
