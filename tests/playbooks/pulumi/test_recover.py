"""What a killed Pulumi left is found in its state, and mended before the next one starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.arm import clients
from infra.arm.pulumi_state import resource_name
from launch.errors import RankliftError
from playbooks.project import Stack
from playbooks.pulumi import recover
from playbooks.pulumi.recover import unfinished
from tests.playbooks.typed import fake_pulumi

URN = "urn:pulumi:dev::ranklift::ranklift:infra:TrainingCluster$"
GROUP = {"type": "azure-native:resources:ResourceGroup", "id": "/subscriptions/s-1/resourceGroups/g"}
SCALE_SET = {
    "urn": f"{URN}azure-native:compute:VirtualMachineScaleSet::nodes",
    "type": "azure-native:compute:VirtualMachineScaleSet",
    "inputs": {"resourceGroupName": "g", "vmScaleSetName": "set"},
}
KEY = {
    "urn": f"{URN}pulumi-python:dynamic/ranklift:KeyPair::user-key",
    "type": "pulumi-python:dynamic/x:KeyPair",
}
PULUMI = ["pulumi refresh --yes --skip-preview --clear-pending-creates --stack dev"]


def state(*creating: dict[str, Any], resources: tuple[dict[str, Any], ...] = (GROUP,)) -> dict[str, Any]:
    operations = [{"type": "creating", "resource": one} for one in creating]
    operations.append({"type": "updating", "resource": GROUP})
    return {"version": 3, "deployment": {"pending_operations": operations, "resources": list(resources)}}


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What was to be removed: subscription, type, name of the scale set."""
    found: list[tuple[str, str, str]] = []
    monkeypatch.setattr(clients, "resource_client", lambda subscription, _: subscription)
    monkeypatch.setattr(
        clients, "remove", lambda who, _, kind, inputs: found.append((who, kind, inputs["vmScaleSetName"]))
    )
    return found


def mended(folder: Path, known: dict[str, Any]) -> list[str]:
    """The commands that the repair runs."""
    (folder / "state").write_text(json.dumps(known))
    run: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recover, "pulumi", lambda _, words: run.append(f"pulumi {' '.join(words)}"))
        recover.recover(Stack("dev", folder, fake_pulumi(folder, f"cat {folder}/state")))
    return run


def test_creations_alone_are_unfinished() -> None:
    assert [resource_name(one["urn"]) for one in unfinished(state(SCALE_SET, KEY))] == [
        "VirtualMachineScaleSet nodes",
        "KeyPair user-key",
    ]
    assert unfinished(state()) == []
    assert unfinished({"version": 3, "deployment": None}) == []


def test_a_stack_that_nobody_was_killed_over_is_left_alone(
    tmp_path: Path, removed: list[tuple[str, str, str]]
) -> None:
    assert mended(tmp_path, state()) == []
    assert removed == []


def test_what_azure_may_have_is_removed_before_pulumi_forgets_it(
    tmp_path: Path, removed: list[tuple[str, str, str]]
) -> None:
    assert mended(tmp_path, state(SCALE_SET, KEY)) == PULUMI
    assert removed == [("s-1", "azure-native:compute:VirtualMachineScaleSet", "set")]


def test_a_key_is_in_the_state_alone(tmp_path: Path, removed: list[tuple[str, str, str]]) -> None:
    assert mended(tmp_path, state(KEY, resources=())) == PULUMI
    assert removed == []


@pytest.mark.parametrize(
    ("known", "named"),
    [
        (state({**GROUP, "urn": f"{URN}azure-native:resources:ResourceGroup::group"}), "ResourceGroup group"),
        (state(SCALE_SET, resources=()), "VirtualMachineScaleSet nodes"),
    ],
)
def test_what_cannot_be_removed_from_here_is_named_with_the_remedy(
    tmp_path: Path, removed: list[tuple[str, str, str]], known: dict[str, Any], named: str
) -> None:
    with pytest.raises(
        RankliftError, match=rf"{named}.*`pulumi -C {tmp_path} refresh --clear-pending-creates --stack dev`"
    ):
        mended(tmp_path, known)
    assert removed == []
