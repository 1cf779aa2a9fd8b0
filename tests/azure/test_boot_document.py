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

pytestmark = [pytest.mark.azure, pytest.mark.timeout(900), pytest.mark.for_every_change]

MARK = "# by an earlier version\n"


def resources(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stack itself, and its scale set."""
    found = {one["type"]: one for one in state["deployment"]["resources"]}
    return found["pulumi:pulumi:Stack"], found[SCALE_SET]


def document(cluster: Workplace) -> str:
    """The document in the scale set's model, as Pulumi last sent it."""
    _, nodes = resources(cluster.pulumi("stack", "export", "--show-secrets", "--stack", STACK).json())
    secret = nodes["inputs"]["virtualMachineProfile"]["osProfile"]["customData"]
    return base64.b64decode(json.loads(secret["plaintext"])).decode()


def age(cluster: Workplace) -> None:
    """Make the stack's state that of an earlier version: another document, and no record of its settings."""
    state = cluster.pulumi("stack", "export", "--show-secrets", "--stack", STACK).json()
    stack, nodes = resources(state)
    del stack["outputs"][MADE_BY]
    secret = nodes["inputs"]["virtualMachineProfile"]["osProfile"]["customData"]
    text = base64.b64decode(json.loads(secret["plaintext"])).decode()
    secret["plaintext"] = json.dumps(base64.b64encode((text + MARK).encode()).decode())
    path = cluster.temporary / "state.json"
    path.write_text(json.dumps(state))
    try:
        cluster.pulumi("stack", "import", "--file", str(path), "--stack", STACK)
    finally:
        path.unlink()


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
