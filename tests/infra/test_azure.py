"""Whom the commands talk to."""

from typing import Any
from unittest.mock import Mock

import pytest
from azure.core.exceptions import ResourceNotFoundError, ServiceRequestError

from infra.azure import REMOVABLE, Clients, clients, endpoint, remove
from launch.errors import InputError


@pytest.mark.parametrize(
    "url",
    [
        "http://management.azure.com",
        "https://127.0.0.1:8443",
        "http://10.0.0.4:80",
        "http://127.0.0.1.evil.example:80",
        "http://user@127.0.0.1:80",
        "http://127.0.0.1:port",
        "127.0.0.1:80",
    ],
)
def test_only_this_machine_is_asked_without_a_credential(url: str) -> None:
    with pytest.raises(InputError, match="RANKLIFT_ARM_ENDPOINT"):
        endpoint({"RANKLIFT_ARM_ENDPOINT": url})


@pytest.mark.parametrize("url", ["http://127.0.0.1:81", "http://localhost:81", "http://[::1]:81"])
def test_a_rehearsal_is_asked_where_it_listens(url: str) -> None:
    assert endpoint({"RANKLIFT_ARM_ENDPOINT": url + "/"}) == url


def test_without_a_rehearsal_azure_is_asked() -> None:
    assert endpoint({}) is None
    assert endpoint({"RANKLIFT_ARM_ENDPOINT": ""}) is None


def test_a_request_to_the_rehearsal_asks_nobody_for_a_token() -> None:
    rehearsed = clients("subscription", {"RANKLIFT_ARM_ENDPOINT": "http://127.0.0.1:1"})
    with pytest.raises(ServiceRequestError):  # nobody listens on port 1, which is found out after signing
        list(rehearsed.compute.virtual_machine_scale_set_vms.list("group", "set"))


@pytest.mark.parametrize("kind", REMOVABLE)
def test_everything_removable_is_removed_by_an_operation_that_azures_sdk_has(kind: str) -> None:
    rehearsed = clients("subscription", {"RANKLIFT_ARM_ENDPOINT": "http://127.0.0.1:1"})
    client, operations, names = REMOVABLE[kind]
    assert callable(getattr(getattr(rehearsed, client), operations).begin_delete)
    with pytest.raises(ServiceRequestError):
        remove(rehearsed, kind, {"resourceGroupName": "group"} | dict.fromkeys(names, "x"))


@pytest.mark.parametrize("answer", [None, ResourceNotFoundError("gone")])
def test_removing_waits_for_azure_and_takes_it_well_when_there_is_nothing(answer: Any) -> None:
    double = Mock()
    double.subnets.begin_delete.return_value.result.side_effect = answer
    inputs = {"resourceGroupName": "g", "virtualNetworkName": "v", "subnetName": "s", "addressPrefix": "-"}
    remove(Clients(compute=double, network=double), "azure-native:network:Subnet", inputs)
    double.subnets.begin_delete.assert_called_once_with("g", "v", "s")
    double.subnets.begin_delete.return_value.result.assert_called_once_with()
