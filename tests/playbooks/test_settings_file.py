"""Settings with their places: the stack's file, and what the project's has for all stacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.errors import InputError
from playbooks.settings_file import Setting, read_settings

PROJECT = """\
name: ranklift
runtime: python
config:
  nodeCount: 3
  ranklift:zone: "1"
  vnetPrefix:
    default: 10.0.0.0/16
    description: the network
  tags:
    type: object
  azure-native:partnerId:
    value: xyz
"""


def test_the_projects_settings_fill_the_stacks(tmp_path: Path) -> None:
    file, project = tmp_path / "Pulumi.dev.yaml", tmp_path / "Pulumi.yaml"
    project.write_text(PROJECT)
    file.write_text("# mine\nconfig:\n  ranklift:tags: {a: b}\n  ranklift:nodeCount: '2'\n")
    assert read_settings(file) == {
        "ranklift:nodeCount": Setting("2", file, 4),
        "ranklift:zone": Setting("1", project, 5),
        "ranklift:vnetPrefix": Setting("10.0.0.0/16", project, 6),
        "azure-native:partnerId": Setting("xyz", project, 11),
        "ranklift:tags": Setting({"a": "b"}, file, 3),
    }
    assert read_settings(file)["ranklift:zone"].place == "Pulumi.yaml:5"


@pytest.mark.parametrize("text", ["", "encryptionsalt: x\n", "config:\n", "config: 3\n", "[1]\n"])
def test_a_file_without_settings_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(text)
    assert read_settings(tmp_path / "Pulumi.dev.yaml") == {}


@pytest.mark.parametrize("name", ["Pulumi.yaml", "Pulumi.dev.yaml"])
@pytest.mark.parametrize(
    "text", ["config: [\n", "config: !!int x\n", "a: 1\n---\nb: 2\n", "config: {? [a] : 1}"]
)
def test_a_file_that_is_not_yaml_is_named(tmp_path: Path, name: str, text: str) -> None:
    for one in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        (tmp_path / one).write_text(text if one == name else "config: {}\n")
    with pytest.raises(InputError, match=rf"configuration = '{tmp_path}/{name}': is not YAML"):
        read_settings(tmp_path / "Pulumi.dev.yaml")
