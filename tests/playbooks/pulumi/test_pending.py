"""Commands that leave other nodes alone do not apply settings that replace them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

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


VERSION = "virtualMachineProfile.storageProfile.imageReference.version"
IMAGE = {
    "op": "replace",
    "urn": f"{PARENT}compute:VirtualMachineScaleSet::nodes",
    "diffReasons": ["virtualMachineProfile"],
    "detailedDiff": {
        "virtualMachineProfile.priority": {"kind": "update"},
        VERSION: {"kind": "update-replace"},
    },
}
"""The step of a preview with another image, as Pulumi prints it."""
ZONED = {
    **IMAGE,
    "detailedDiff": {"zones[0]": {"kind": "delete-replace"}, VERSION: {"kind": "update-replace"}},
}
"""One that also takes the nodes out of their zone."""


def test_settings_changed_since_the_last_update_that_succeeded_are_the_cause_if_they_force_it(
    monkeypatch: pytest.MonkeyPatch, stack: Stack
) -> None:
    updates = (update("failed", image="new"), update(image="old", spot="true", nodeCount="2", zone="1"))
    previewed(monkeypatch, IMAGE, updates=updates)
    found = find_replacement(stack)
    assert str(found) == "ranklift:image = 'new', was 'old'"


def test_every_setting_that_forces_it_is_named(monkeypatch: pytest.MonkeyPatch, stack: Stack) -> None:
    previewed(monkeypatch, ZONED, updates=(update(image="old", spot="false", zone="1"),))
    assert str(find_replacement(stack)) == (
        "ranklift:image = 'new', was 'old', ranklift:zone = not set, was '1'"
    )


def test_a_property_that_no_changed_setting_explains_is_named_beside_them(
    monkeypatch: pytest.MonkeyPatch, stack: Stack
) -> None:
    previewed(monkeypatch, ZONED, updates=(update(image="new", zone="1"),))
    assert str(find_replacement(stack)) == f"ranklift:zone = not set, was '1', {VERSION}"


@pytest.mark.parametrize("secret", ["{secure: v1:CIPHER}", "{of: [{secure: v1:CIPHER}]}"])
def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch, stack: Stack, secret: str) -> None:
    stack.configuration.write_text(f"config:\n  ranklift:image: {secret}\n")
    previewed(monkeypatch, IMAGE, updates=(update(nodeCount="2"),))
    assert str(find_replacement(stack)) == "ranklift:image = a secret, was not set"
    kept = update(nodeCount="2")
    kept["config"]["ranklift:image"] = {"secret": True}
    previewed(monkeypatch, IMAGE, updates=(kept,))
    assert "ranklift:image" not in str(find_replacement(stack)), "whether it was changed is not known"


def test_where_no_setting_was_changed_the_property_is_the_cause(
    monkeypatch: pytest.MonkeyPatch, stack: Stack
) -> None:
    previewed(monkeypatch, IMAGE, updates=(update(image="new", spot="true", nodeCount="2"),))
    assert str(find_replacement(stack)) == VERSION


def test_ctrl_c_reports_that_nothing_was_changed(
    monkeypatch: pytest.MonkeyPatch, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Stack, "preview", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        find_replacement(stack)
    shown = capsys.readouterr().err
    assert shown == "$ pulumi preview --stack dev\nno resource was changed: this was only a preview\n"


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
    step = {"op": op, "urn": f"{PARENT}compute:VirtualMachineScaleSet::nodes", "replaceReasons": [VERSION]}
    previewed(monkeypatch, {"op": "same", "urn": f"{PARENT}network:Subnet::nodes"}, step)
    with pytest.raises(
        InputError, match=rf"replace all nodes \({VERSION}\); nothing was changed; set them back"
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
