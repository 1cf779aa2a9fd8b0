"""By which document nodes boot: those that are made again by the newest, those that join others by theirs."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from infra.arm.pulumi_state import SCALE_SET
from infra.config.replacing import MADE_BY
from tests.azure.test_scaling import STACK, booted
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(900)]

MARK = "# by an earlier version\n"


SERVER = "azure-native:compute:VirtualMachine"


def resources(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The resources by type, of which some have one alone."""
    return {one["type"]: one for one in state["deployment"]["resources"]}


def document(cluster: Workplace) -> str:
    """The document in the scale set's model, as Pulumi last sent it."""
    found = resources(cluster.pulumi("stack", "export", "--show-secrets", "--stack", STACK).json())
    secret = found[SCALE_SET]["inputs"]["virtualMachineProfile"]["osProfile"]["customData"]
    return base64.b64decode(json.loads(secret["plaintext"])).decode()


def age(cluster: Workplace) -> None:
    """Make the stack's state that of an earlier version: another document, and no record of its settings."""
    state = cluster.pulumi("stack", "export", "--show-secrets", "--stack", STACK).json()
    found = resources(state)
    del found["pulumi:pulumi:Stack"]["outputs"][MADE_BY]
    secret = found[SCALE_SET]["inputs"]["virtualMachineProfile"]["osProfile"]["customData"]
    text = base64.b64decode(json.loads(secret["plaintext"])).decode()
    secret["plaintext"] = json.dumps(base64.b64encode((text + MARK).encode()).decode())
    path = cluster.temporary / "state.json"
    path.write_text(json.dumps(state))
    try:
        cluster.pulumi("stack", "import", "--file", str(path), "--stack", STACK)
    finally:
        path.unlink()


@pytest.mark.for_every_change
def test_an_earlier_versions_nodes_stay_and_new_ones_are_made_like_them(workplace: Workplace) -> None:
    workplace.configure(STACK, nodeCount=1)
    workplace.fab("up")
    age(workplace)
    before = booted(workplace)
    workplace.configure(STACK, nodeCount=2)
    workplace.fab("up")
    after = booted(workplace)
    assert len(after) == 2
    assert before.items() <= after.items()
    assert document(workplace).endswith(MARK)
    workplace.pulumi("preview", "--stack", STACK, "--expect-no-changes")


@pytest.mark.for_every_change
def test_nodes_that_a_setting_replaces_boot_by_the_document_with_it(workplace: Workplace) -> None:
    before = booted(workplace)
    workplace.configure(STACK, nodeCount=2, nfs="vm", nfsSizeGib=200)
    workplace.fab("up", "--yes")
    assert set(booted(workplace).values()).isdisjoint(before.values())
    workplace.fab("exec", "touch /mnt/nfs/$(hostname)")
    seen = workplace.fab("exec", "ls /mnt/nfs | wc -l", "--json").json()
    assert {result["stdout"].strip() for result in seen.values()} == {"2"}
    assert not document(workplace).endswith(MARK)
    workplace.pulumi("preview", "--stack", STACK, "--expect-no-changes")


def test_a_server_for_files_that_a_setting_replaces_boots_by_the_document_with_it(
    workplace: Workplace,
) -> None:
    workplace.configure(STACK, nodeCount=1, nfs="vm", nfsSizeGib=200, adminUser="trainer")
    workplace.fab("up", "--yes")
    found = resources(workplace.pulumi("stack", "export", "--stack", STACK).json())
    server = base64.b64decode(found[SERVER]["inputs"]["osProfile"]["customData"]).decode()
    assert "chown trainer: " in server
    assert workplace.fab("exec", "--json", "whoami; ls /mnt/nfs").json()["node000000"]["exit_status"] == 0
    workplace.pulumi("preview", "--stack", STACK, "--expect-no-changes")
