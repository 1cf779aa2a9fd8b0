"""What a killed Pulumi left is found in its state and its lock, and mended before the next one starts."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra import azure
from launch.errors import RankliftError
from playbooks.project import Stack
from playbooks.stack.locks import InUse
from playbooks.stack.unfinished import left_lock, mend, unfinished
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
    monkeypatch.setattr(azure, "resource_client", lambda subscription, _: subscription)
    monkeypatch.setattr(
        azure, "remove", lambda who, _, kind, inputs: found.append((who, kind, inputs["vmScaleSetName"]))
    )
    return found


def mended(folder: Path, known: dict[str, Any]) -> list[str]:
    """The commands that mending the stack runs."""
    (folder / "state").write_text(json.dumps(known))
    run: list[str] = []
    mend(
        Stack("dev", folder, fake_pulumi(folder, f"cat {folder}/state")),
        lambda words: run.append(f"pulumi {' '.join(words)}"),
    )
    return run


def test_creations_alone_are_unfinished() -> None:
    assert [one.name for one in unfinished(state(SCALE_SET, KEY))] == [
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
        RankliftError, match=rf"{named}.*`pulumi refresh --clear-pending-creates --stack dev`"
    ):
        mended(tmp_path, known)
    assert removed == []


def locked(folder: Path, process: int, host: str) -> Stack:
    """A stack whose lock the process holds."""
    backend = folder / "back end"
    lock = backend / ".pulumi" / "locks" / "organization" / "ranklift" / "dev" / "0.json"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": process, "hostname": host, "username": "me"}))
    return Stack("me/ranklift/dev", folder, {"PULUMI_BACKEND_URL": backend.as_uri()})


def test_the_lock_of_a_process_that_is_gone_is_found(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert left_lock(locked(tmp_path, ended.pid, socket.gethostname())) == ended.pid


def test_a_number_that_is_now_another_programs_is_no_pulumi(tmp_path: Path) -> None:
    assert left_lock(locked(tmp_path, os.getpid(), socket.gethostname())) == os.getpid()


def test_the_lock_of_a_pulumi_that_runs_is_respected(tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as running:
        try:
            while Path(f"/proc/{running.pid}/comm").read_text() != "pulumi\n":
                pass
            stack = locked(tmp_path, running.pid, socket.gethostname())
            assert left_lock(stack) is None
            with pytest.raises(InUse, match=rf"works on it \(process {running.pid} of me on ") as caught:
                mend(stack, lambda words: pytest.fail(f"pulumi {words}"))
            assert "cancel" not in str(caught.value)
        finally:
            running.kill()


def test_a_pulumi_that_was_killed_and_not_yet_waited_for_holds_nothing(tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as killed:
        while Path(f"/proc/{killed.pid}/comm").read_text() != "pulumi\n":
            pass
        killed.kill()
        while ") Z " not in Path(f"/proc/{killed.pid}/stat").read_text():
            pass
        assert left_lock(locked(tmp_path, killed.pid, socket.gethostname())) == killed.pid


def test_the_lock_of_another_machine_is_respected(tmp_path: Path) -> None:
    assert left_lock(locked(tmp_path, 2**22, f"not-{socket.gethostname()}")) is None


def test_backends_without_files_keep_no_lock_that_outlives_its_process(tmp_path: Path) -> None:
    assert left_lock(Stack("dev", tmp_path, {"PULUMI_BACKEND_URL": "https://api.pulumi.com"})) is None
    assert left_lock(Stack("dev", tmp_path, {})) is None


def test_a_left_lock_is_taken_away_first(tmp_path: Path) -> None:
    stack = locked(tmp_path, 2**22, socket.gethostname())
    environment = {**stack.environment, **fake_pulumi(tmp_path, f"echo '{json.dumps(state())}'")}
    run: list[list[str]] = []
    mend(Stack("dev", tmp_path, environment), lambda words: run.append(list(words)))
    assert run == [["cancel", "--yes", "--stack", "dev"]]
