"""A look at Azure finds what is gone and what has another size, and asks no more than it has to."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError

from infra.arm import clients
from infra.arm.update_errors import AzureFailed
from infra.scale_plan import Drift
from launch.errors import RetryError
from playbooks.project import Stack
from playbooks.pulumi import drift
from playbooks.pulumi.drift import find_drift, find_settled_drift
from tests.playbooks.typed import fake_pulumi

GROUP = "/subscriptions/s-1/resourceGroups/ranklift-dev"
NETWORK = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/net"
SET = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/set"
ROLE = f"{GROUP}/providers/Microsoft.Authorization/roleDefinitions/r"
RIGHT = f"{SET}/providers/Microsoft.Authorization/roleAssignments/a"
KNOWN = {
    "resources:ResourceGroup::group": GROUP,
    "network:VirtualNetwork::network": NETWORK,
    "network:Subnet::nodes": f"{NETWORK}/subnets/nodes",
    "compute:VirtualMachineScaleSet::nodes": SET,
    "authorization:RoleDefinition::watcher-role": ROLE,
    "authorization:RoleAssignment::watcher-right": RIGHT,
}


def resource(name: str, identifier: str) -> dict[str, Any]:
    kind, _, own = name.partition("::")
    urn = f"urn:pulumi:dev::ranklift::a$azure-native:{kind}::{own}"
    inputs = {"sku": {"capacity": 4}} if "ScaleSet" in name else {}
    return {"urn": urn, "type": f"azure-native:{kind}", "id": identifier, "inputs": inputs}


class Double:
    """Azure, with what the stack is known to have, less what a test takes away."""

    def __init__(self) -> None:
        self.there = set(KNOWN.values())
        self.capacity = 4
        self.states = ["Succeeded"]
        self.asked: list[str] = []

    def listed(self, group: str) -> list[Mock]:
        self.asked.append(group)
        if GROUP not in self.there:
            raise ResourceNotFoundError("no such group")
        # Azure is free with capitals.
        return [Mock(id=one.upper()) for one in self.there if len(one.split("/")) == 9 and one != ROLE]

    def found(self, identifier: str, **_: object) -> Mock:
        self.asked.append(identifier)
        if identifier not in self.there:
            raise ResourceNotFoundError("gone")
        return Mock()

    def group(self, name: str) -> Mock:
        return self.found(f"/subscriptions/s-1/resourceGroups/{name}")

    def scale_set(self, group: str, name: str) -> Mock:
        found = self.found(f"/subscriptions/s-1/resourceGroups/{group}/providers/Microsoft.Compute/"
                           f"virtualMachineScaleSets/{name}")  # fmt: skip
        found.sku.capacity = self.capacity
        found.provisioning_state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return found


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Double:
    made = Double()
    resources, compute = Mock(), Mock()
    resources.resources.list_by_resource_group = made.listed
    resources.resources.get_by_id = made.found
    resources.resource_groups.get = made.group
    compute.compute.virtual_machine_scale_sets.get = made.scale_set
    monkeypatch.setattr(clients, "resource_client", lambda *_: resources)
    monkeypatch.setattr(clients, "clients", lambda *_: compute)
    return made


def known_stack(folder: Path, known: dict[str, str] = KNOWN) -> Stack:
    key = {"urn": "urn:x::user-key", "type": "pulumi-python:dynamic/x:KeyPair", "id": "k", "inputs": {}}
    resources = [key, *(resource(name, identifier) for name, identifier in known.items())]
    (folder / "state").write_text(json.dumps({"deployment": {"resources": resources}}))
    return Stack("dev", folder, fake_pulumi(folder, f"cat {folder}/state"))


def looked(folder: Path, wanted: int | None = 4, known: dict[str, str] = KNOWN) -> Drift | None:
    return find_drift(known_stack(folder, known), wanted)


def test_what_is_as_it_was_is_no_drift(tmp_path: Path, double: Double) -> None:
    found = looked(tmp_path)
    assert found == Drift(4, 4, 4)
    assert not found
    assert len(double.asked) == 6, "one question a group, one a child or role, the group itself, the capacity"


def test_a_stack_of_which_nothing_was_made_is_not_asked_after(tmp_path: Path, double: Double) -> None:
    assert looked(tmp_path, known={}) is None
    assert double.asked == []


def test_another_capacity_is_drift_and_another_wish_is_not(tmp_path: Path, double: Double) -> None:
    assert looked(tmp_path, 6) == Drift(6, 4, 4)
    double.capacity = 0
    found = looked(tmp_path)
    assert found == Drift(4, 4, 0)
    assert found
    assert looked(tmp_path, None) == Drift(4, 4, 0)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("network:Subnet::nodes", ("Subnet nodes",)),
        ("network:VirtualNetwork::network", ("VirtualNetwork network",)),
        ("compute:VirtualMachineScaleSet::nodes", ("VirtualMachineScaleSet nodes",)),
        ("authorization:RoleDefinition::watcher-role", ("RoleDefinition watcher-role",)),
        ("authorization:RoleAssignment::watcher-right", ("RoleAssignment watcher-right",)),
    ],
)
def test_what_somebody_has_deleted_is_named(
    tmp_path: Path, double: Double, name: str, gone: tuple[str, ...]
) -> None:
    double.there.discard(KNOWN[name])
    found = looked(tmp_path)
    assert found is not None
    assert found.gone == gone


def test_a_whole_group_may_be_gone(tmp_path: Path, double: Double) -> None:
    double.there.clear()
    found = looked(tmp_path)
    assert found is not None
    assert len(found.gone) == 6
    assert found.present is None


def test_a_look_that_fails_is_no_sign_that_all_is_well(tmp_path: Path, double: Double) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ClientAuthenticationError("DefaultAzureCredential failed to get a token")

    double.found = refused  # type: ignore[method-assign,assignment]
    double.group = refused  # type: ignore[method-assign,assignment]
    with pytest.raises(AzureFailed, match=r"did not list its resources: [^\n]*; run `az login`$"):
        looked(tmp_path)


def test_nodes_that_a_killed_command_removes_are_waited_for(
    tmp_path: Path, double: Double, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drift, "_POLL_S", 0.01)
    double.states = ["Updating", "Updating", "Succeeded"]
    assert find_settled_drift(known_stack(tmp_path), 4, time.monotonic() + 60) == Drift(4, 4, 4)
    assert capsys.readouterr().err.count("Azure is still changing the nodes") == 1


def test_the_wait_for_azure_ends(tmp_path: Path, double: Double) -> None:
    double.states = ["Updating"]
    with pytest.raises(RetryError, match="Azure is still changing its nodes; nothing was changed"):
        find_settled_drift(known_stack(tmp_path), 4, time.monotonic() - 1)
