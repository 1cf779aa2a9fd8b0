"""Commands that leave other nodes alone do not apply settings that replace them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.errors import InputError
from playbooks.project import Stack
from playbooks.pulumi.pending import refuse_replacement

PARENT = "urn:pulumi:dev::ranklift::ranklift:infra:TrainingCluster$azure-native:"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack("dev", tmp_path, {})


def previewed(monkeypatch: pytest.MonkeyPatch, *steps: dict[str, Any]) -> None:
    monkeypatch.setattr(Stack, "preview", lambda _: {"steps": list(steps)})


@pytest.mark.parametrize("op", ["replace", "create-replacement", "delete-replaced", "delete"])
def test_an_update_that_replaces_the_nodes_is_refused_with_what_changed(
    monkeypatch: pytest.MonkeyPatch, stack: Stack, op: str
) -> None:
    image = "virtualMachineProfile.storageProfile.imageReference.version"
    step = {"op": op, "urn": f"{PARENT}compute:VirtualMachineScaleSet::nodes", "replaceReasons": [image]}
    previewed(monkeypatch, {"op": "same", "urn": f"{PARENT}network:Subnet::nodes"}, step)
    with pytest.raises(
        InputError, match=rf"replace all nodes \({image}\); nothing was changed; set them back"
    ):
        refuse_replacement(stack)


@pytest.mark.parametrize("op", ["same", "update", "create"])
def test_one_that_changes_the_nodes_in_place_passes(
    monkeypatch: pytest.MonkeyPatch, stack: Stack, op: str
) -> None:
    previewed(monkeypatch, {"op": op, "urn": f"{PARENT}compute:VirtualMachineScaleSet::nodes"})
    refuse_replacement(stack)


def test_the_replacement_of_another_resource_passes(monkeypatch: pytest.MonkeyPatch, stack: Stack) -> None:
    previewed(monkeypatch, {"op": "replace", "urn": f"{PARENT}network:NatGateway::way-out"})
    refuse_replacement(stack)
