"""What is done with the nodes that came when Azure could not give all: kept, or removed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from azure.core.exceptions import HttpResponseError

from infra.arm import clients as azure
from infra.arm.update_errors import Trouble
from infra.inventory import Inventory, Node
from playbooks.nodes import vm_ops
from playbooks.project import Stack
from playbooks.pulumi import partial
from playbooks.pulumi.partial import NotAllCame, asking_for, scale_set_guid, settle
from playbooks.pulumi.run import NEVER, UpdateFailed
from tests.playbooks.typed import fake_pulumi

SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set"
FAILED = UpdateFailed(
    Stack("dev", Path(), {}), [Trouble("VirtualMachineScaleSet nodes", "AllocationFailed", "Too few.")]
)
NO_BOOT = UpdateFailed(
    Stack("dev", Path(), {}), [Trouble("VirtualMachineScaleSet nodes", "OSProvisioningTimedOut", "Silent.")]
)


class Double:
    """What was done, in words."""

    def __init__(self) -> None:
        self.done: list[str] = []


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Double:
    made = Double()

    def deleted(_: Stack, identifier: str, nodes: tuple[Node, ...], limit: float) -> None:
        assert identifier == SET
        made.done.append("delete " + " ".join(str(node.instance_id) for node in nodes))

    def ran(_: Stack, words: list[str], limit: float | None = None) -> None:
        if "--config-file" in words:
            text = Path(words[words.index("--config-file") + 1]).read_text()
            made.done.append(f"up with {text.partition('nodeCount: ')[2].splitlines()[0]}")
        else:
            made.done.append(words[0])

    monkeypatch.setattr(vm_ops, "delete", deleted)
    monkeypatch.setattr(partial, "pulumi", ran)
    monkeypatch.setattr(Stack, "outputs", lambda _: None)
    monkeypatch.setattr(vm_ops, "refresh", lambda *_: made.done.append("read"))
    return made


def settled(
    monkeypatch: pytest.MonkeyPatch, folder: Path, error: UpdateFailed, before: int | None, setting: str
) -> NotAllCame | None:
    """Of four wanted nodes 0 to 2 are there, the first ``before`` of them from before, and 3 has failed."""
    machines = [machine(number, "Failed" if number == 3 else "Succeeded") for number in range(4)]
    clients = Mock()
    clients.compute.virtual_machine_scale_set_vms.list.return_value = machines
    monkeypatch.setattr(azure, "clients", lambda *_: clients)
    resource = {"type": "azure-native:compute:VirtualMachineScaleSet", "id": SET}
    (folder / "state").write_text(json.dumps({"deployment": {"resources": [resource]}}))
    (folder / "Pulumi.dev.yaml").write_text(f'config:\n  ranklift:nodeCount: "4"\n{setting}')
    stack = Stack("dev", folder, fake_pulumi(folder, f"cat {folder}/state"))
    there = None
    if before is not None:
        nodes = tuple(Node(f"n{number}", number, "", "", 0, 8, "running") for number in range(before))
        there = Inventory("dev", "size", "place", "me", nodes)
    return settle(stack, error, there, 4, NEVER, "fab scale 4 --stack dev")


def machine(number: int, state: str) -> Any:
    made = Mock(instance_id=str(number))
    made.properties.provisioning_state = state
    made.properties.os_profile.computer_name = f"n{number}"
    return made


@pytest.mark.parametrize(("answer", "expected"), [("guid-1", "guid-1"), ("ResourceNotFound", None)])
def test_a_scale_set_is_known_by_the_id_that_azure_gave_to_it_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, expected: str | None
) -> None:
    gone = HttpResponseError(answer)
    gone.error = Mock(code=answer, message="", details=None)
    found = Mock()
    found.properties.unique_id = answer
    clients = Mock()
    clients.compute.virtual_machine_scale_sets.get.side_effect = [found if expected else gone]
    monkeypatch.setattr(azure, "clients", lambda *_: clients)
    resource = {"type": "azure-native:compute:VirtualMachineScaleSet", "id": SET}
    (tmp_path / "state").write_text(json.dumps({"deployment": {"resources": [resource]}}))
    stack = Stack("dev", tmp_path, fake_pulumi(tmp_path, f"cat {tmp_path}/state"))
    assert scale_set_guid(stack) == expected
    clients.compute.virtual_machine_scale_sets.get.assert_called_once_with("g", "set")


@pytest.mark.parametrize(
    ("error", "before", "keep", "done", "kept", "message"),
    [
        (FAILED, None, False, ["destroy"], False, "3 of 4 nodes are ready"),
        (FAILED, None, True, ["delete 3", "up with '3'", "read"], True, "n0,n1,n2 kept"),
        (FAILED, 2, False, ["delete 2 3", "up with '2'", "read"], False, "the 2 from before stay"),
        (FAILED, 2, True, ["delete 3", "up with '3'", "read"], True, "1 of 2 further nodes are ready"),
        (NO_BOOT, 2, False, ["delete 3", "up with '3'", "read"], True, "in place of those that did not boot"),
        (NO_BOOT, None, False, ["delete 3", "up with '3'", "read"], True, "3 of 4 nodes are ready"),
    ],
)
def test_nodes_that_came_are_kept_or_removed(  # noqa: PLR0913, PLR0917  (a table's columns)
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    double: Double,
    error: UpdateFailed,
    before: int | None,
    keep: bool,
    done: list[str],
    kept: bool,
    message: str,
) -> None:
    setting = "  ranklift:partial: keep\n" if keep else ""
    found = settled(monkeypatch, tmp_path, error, before, setting)
    assert found is not None
    assert double.done == done
    assert found.kept is kept
    assert message in str(found)
    assert str(found).splitlines()[-1].startswith("`fab scale 4 --stack dev` ")


def test_pulumi_makes_another_number_than_the_configuration_says(tmp_path: Path) -> None:
    text = 'config:\n  ranklift:nodeCount: "4"\n'
    stack = Stack("dev", tmp_path, {})
    stack.configuration.write_text(text)
    with asking_for(stack, 6) as options:
        assert options[0] == "--config-file"
        assert Path(options[1]).read_text() == "config:\n  ranklift:nodeCount: '6'\n"
    assert not Path(options[1]).exists()
    for same in (4, None):
        with asking_for(stack, same) as options:
            assert options == []
    assert stack.configuration.read_text() == text


def test_any_other_failure_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, double: Double
) -> None:
    other = UpdateFailed(
        Stack("dev", Path(), {}), [Trouble("Subnet nodes", "AuthorizationFailed", "No right.")]
    )
    assert settled(monkeypatch, tmp_path, other, 2, "") is None
    assert double.done == []
