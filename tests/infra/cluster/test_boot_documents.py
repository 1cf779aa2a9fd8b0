"""Whose first-boot documents an update leaves as they are, and whose it replaces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.programs import CONFIGURATIONS

ROOT = Path(__file__).parents[3]
NODES = "azure-native:compute:VirtualMachineScaleSet nodes"
SERVER = "azure-native:compute:VirtualMachine nfs-server"
OF_NODES = ["virtualMachineProfile.osProfile.customData", 'tags["ranklift-agent"]']
CHANGES = ("", "vmSize", "image spot", "nfs", "adminUser", "zone image")


@pytest.fixture(scope="module")
def ignored() -> dict[str, dict[str, list[str]]]:
    """By the changed settings, the ignored properties of each resource of a stack with a server for files."""
    settings = CONFIGURATIONS["hb-marketplace-plan-nfs-vm"]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.infra.recorded_program"],
        input=json.dumps({changed: {**settings, "*changed": changed} for changed in CHANGES}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return {
        changed: {name: options["ignoreChanges"] for name, options in one["options"].items()}
        for changed, one in json.loads(ran.stdout).items()
    }


@pytest.mark.parametrize("changed", CHANGES)
def test_nodes_keep_their_document_unless_a_setting_replaces_them(
    ignored: dict[str, dict[str, list[str]]], changed: str
) -> None:
    assert ignored[changed][NODES] == ([] if changed else OF_NODES)


@pytest.mark.parametrize("changed", CHANGES)
def test_the_server_keeps_its_own_unless_a_setting_replaces_it(
    ignored: dict[str, dict[str, list[str]]], changed: str
) -> None:
    is_new = changed in ("nfs", "adminUser", "zone image")
    assert ignored[changed][SERVER] == ([] if is_new else ["osProfile.customData"])
