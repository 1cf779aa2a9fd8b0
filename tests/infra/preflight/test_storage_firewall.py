"""Whether a given storage account lets the nodes in, and what has to be done when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from infra.arm.errors import AzureRefused
from infra.preflight.decide import Plan, decide
from infra.preflight.storage_firewall import Firewall, firewall_of, nodes_subnet
from tests.infra.azure_answers import Azure, error
from tests.infra.preflight.stack_figures import config, figures

ACCOUNT = "/subscriptions/s-2/resourceGroups/corp/providers/Microsoft.Storage/storageAccounts/corpdata"
NETWORK = "/subscriptions/s-1/resourceGroups/corp/providers/Microsoft.Network/virtualNetworks/lab"
SUBNET = f"{NETWORK}/subnets/training"
OWN = (
    "/subscriptions/s-1/resourceGroups/ranklift-dev/providers/Microsoft.Network/virtualNetworks"
    "/ranklift-dev-vnet/subnets/nodes"
)
GIVEN = {"subnetId": SUBNET, "subnetPrefix": "10.1.0.0/24"}
CLOSED = Firewall()


def planned(found: Firewall | AzureRefused | None, storage: str = "serviceEndpoint", **settings: str) -> Plan:
    chosen = config(storage=storage, storageAccountId=ACCOUNT, **settings)
    return decide("dev", "s-1", chosen, figures(firewall=found))


def firewall_from(**properties: Any) -> Firewall | None:
    azure = Azure(details={"/storageAccounts/corpdata": {"id": ACCOUNT, "properties": properties}})
    return firewall_of(azure.rest, ACCOUNT)


def rules(*allowed: tuple[str, str | None], default: str = "Deny") -> dict[str, Any]:
    entries = [
        {"id": one, "action": "Allow", **({"state": state} if state else {})} for one, state in allowed
    ]
    return {"defaultAction": default, "virtualNetworkRules": entries}


def test_azure_says_who_is_let_in() -> None:
    assert (
        firewall_from()
        == firewall_from(networkAcls=rules(default="Allow"), publicNetworkAccess=None)
        == Firewall(open=True)
    )
    found = firewall_from(
        networkAcls=rules((SUBNET.upper(), "Succeeded"), (OWN, None)), publicNetworkAccess="Enabled"
    )
    assert found == Firewall(subnets=(SUBNET.lower(), OWN.lower()))
    for access in ("Disabled", "SecuredByPerimeter"):
        assert firewall_from(publicNetworkAccess=access) == Firewall(public=False, open=True)


@pytest.mark.parametrize("state", ["NetworkSourceDeleted", "networkSourceDeleted", "Failed"])
def test_a_rule_for_a_subnet_that_was_deleted_lets_nobody_in(state: str) -> None:
    assert firewall_from(networkAcls=rules((OWN, state))) == CLOSED


def test_an_account_that_is_not_there_is_refused_and_an_error_is_an_error() -> None:
    azure = Azure(instead={"corpdata": error(404, "ResourceNotFound")})
    assert firewall_of(azure.rest, ACCOUNT) is None
    (refusal,) = planned(None).refusals
    assert f"ranklift:storageAccountId = '{ACCOUNT}': Azure has no such account" in str(refusal)
    azure = Azure(instead={"corpdata": error(500, "InternalError")})
    with pytest.raises(AzureRefused, match="InternalError"):
        firewall_of(azure.rest, ACCOUNT)


@pytest.mark.parametrize("found", [Firewall(open=True), Firewall(subnets=(SUBNET.lower(),))])
def test_an_account_that_lets_the_nodes_in_is_no_matter(found: Firewall) -> None:
    done = planned(found, **GIVEN)
    assert (done.refusals, done.warnings) == ((), ())


@pytest.mark.parametrize("found", [CLOSED, Firewall(public=False)])
def test_a_private_endpoint_reaches_it_whatever_its_firewall_says(found: Firewall) -> None:
    done = planned(found, "privateEndpoint")
    assert (done.refusals, done.warnings) == ((), ())


def test_a_given_subnet_that_is_not_let_in_is_refused_with_the_command() -> None:
    (refusal,) = planned(CLOSED, **GIVEN).refusals
    assert refusal.problem == "the firewall of storage account corpdata does not let the nodes' subnet in"
    command = (
        "az storage account network-rule add --subscription s-2 --resource-group corp "
        f"--account-name corpdata --subnet {SUBNET}"
    )
    assert f"`{command}`" in refusal.remedy
    assert "privateEndpoint" in refusal.remedy


@pytest.mark.parametrize(
    ("settings", "subnet"),
    [
        ({}, OWN),
        ({"vnetId": NETWORK, "subnetPrefix": "10.1.0.0/24"}, f"{NETWORK}/subnets/ranklift-dev"),
    ],
)
def test_of_a_subnet_that_is_yet_to_be_made_it_is_said_what_comes_after(
    settings: dict[str, str], subnet: str
) -> None:
    done = planned(CLOSED, **settings)
    (warning,) = done.warnings
    assert done.refusals == ()
    assert f"--subnet {subnet}`; until then it answers 403" in warning
    assert nodes_subnet("dev", "s-1", config(**settings)) == subnet
    assert planned(Firewall(subnets=(subnet.lower(),)), **settings).warnings == ()


def test_an_account_that_is_closed_to_service_endpoints_is_refused() -> None:
    (refusal,) = planned(Firewall(public=False, open=True)).refusals
    assert "its public network access is off" in refusal.problem
    assert refusal.remedy == "set ranklift:storage to privateEndpoint"


def test_what_could_not_be_asked_is_unknown() -> None:
    done = planned(AzureRefused("Azure answered: no"))
    assert done.refusals == ()
    assert "whether the storage account admits the nodes: Azure answered: no" in done.unknowns


def test_without_a_given_account_nothing_is_said() -> None:
    done = decide("dev", "s-1", config(storage="serviceEndpoint"), figures())
    assert (done.refusals, done.warnings) == ((), ())
