"""Commands that leave other nodes alone do not apply settings that replace them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.errors import InputError
from playbooks.project import PulumiError, Stack
from playbooks.pulumi.pending import find_replacement, refuse_replacement

PARENT = "urn:pulumi:dev::ranklift::ranklift:infra:TrainingCluster$azure-native:"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    (tmp_path / "Pulumi.dev.yaml").write_text(
        "config:\n  ranklift:nodeCount: 3\n  ranklift:image: new\n  ranklift:spot: true\n"
    )
    return Stack("dev", tmp_path, {})


def previewed(
    monkeypatch: pytest.MonkeyPatch, *steps: dict[str, Any], updates: tuple[dict[str, Any], ...] = ()
) -> None:
    monkeypatch.setattr(Stack, "preview", lambda *_: {"steps": list(steps)})
    monkeypatch.setattr(Stack, "history", lambda _: list(updates))


def update(result: str = "succeeded", **settings: str) -> dict[str, Any]:
    config = {f"ranklift:{key}": {"value": value, "secret": False} for key, value in settings.items()}
    return {"kind": "update", "result": result, "config": config}


IMAGE = {
    "op": "replace",
    "urn": f"{PARENT}compute:VirtualMachineScaleSet::nodes",
    "diffReasons": ["virtualMachineProfile"],
    "detailedDiff": {
        "virtualMachineProfile.priority": {"kind": "update"},
        "virtualMachineProfile.storageProfile.imageReference.version": {"kind": "update-replace"},
    },
}
"""The step of a preview with another image, as Pulumi prints it."""


def test_the_settings_changed_since_the_last_update_that_succeeded_are_the_cause(
    monkeypatch: pytest.MonkeyPatch, stack: Stack
) -> None:
    updates = (update("failed", image="new"), update(image="old", spot="true", nodeCount="2", zone="1"))
    previewed(monkeypatch, IMAGE, updates=updates)
    found = find_replacement(stack)
    assert str(found) == "ranklift:image = 'new', was 'old', ranklift:zone = not set, was '1'"


def test_where_no_setting_was_changed_the_property_is_the_cause(
    monkeypatch: pytest.MonkeyPatch, stack: Stack
) -> None:
    previewed(monkeypatch, IMAGE, updates=(update(image="new", spot="true", nodeCount="2"),))
    assert str(find_replacement(stack)) == "virtualMachineProfile.storageProfile.imageReference.version"


def test_a_preview_that_fails_is_reported_by_its_errors(tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    program.write_text(
        '#!/bin/bash\necho \'{"diagnostics": [{"severity": "warning", "message": "old"}, '
        '{"severity": "error", "message": "error: no such size\\n"}]}\'; exit 1\n'
    )
    program.chmod(0o755)
    with pytest.raises(PulumiError) as caught:
        find_replacement(Stack("dev", tmp_path, {"PATH": str(tmp_path)}))
    assert str(caught.value) == "pulumi preview --json: no such size"


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
