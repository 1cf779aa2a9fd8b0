"""`fab image.build` repeats what Azure refuses because it does not know everywhere yet what was just made."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.arm.update_errors import Trouble
from playbooks import images
from playbooks.images import ImageStack
from playbooks.pulumi import run
from playbooks.pulumi.run import UpdateFailed

SETTINGS = "config:\n  ranklift-images:size: Standard_ND40rs_v2\n"
RIGHT = "urn:pulumi:gpu::ranklift-images::azure-native:authorization:RoleAssignment::builder-right"


class Project:
    """A project whose Pulumi writes its commands down, and fails at an update as often as codes are left."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.program = folder, folder / "images" / "build"
        self.program.mkdir(parents=True)
        (folder / "Pulumi.yaml").write_text("name: ranklift\nruntime: python\n")
        (self.program / "Pulumi.yaml").write_text("name: ranklift-images\nruntime: python\n")
        (self.program / "Pulumi.gpu.yaml").write_text(SETTINGS)
        (folder / "bin").mkdir()
        pulumi = folder / "bin" / "pulumi"
        pulumi.write_text(
            f'#!/bin/bash\necho "$PWD: $*" >> {folder}/calls\n'
            f'[ "$1 $2" = "stack ls" ] && cat {folder}/stacks\n'
            '[ "$1" = up ] || exit 0\n'
            f"refusal=$(ls {folder}/refusals | head -n 1)\n"
            '[ -z "$refusal" ] && exit 0\n'
            'while [ "$1" != --event-log ]; do shift; done\n'
            f'mv {folder}/refusals/$refusal "$2"\nexit 1\n'
        )
        pulumi.chmod(0o755)
        (folder / "refusals").mkdir()
        (folder / "stacks").write_text("[]")
        monkeypatch.setenv("RANKLIFT_PROJECT", str(folder))
        monkeypatch.setenv("PATH", f"{pulumi.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("RANKLIFT_STACK", "dev")
        monkeypatch.setattr(run, "_FIRST_PAUSE_S", 0.05)

    def refuse(self, *codes: str) -> None:
        for number, code in enumerate(codes):
            text = f'Code="{code}" Message="Not now."'
            event = {"diagnosticEvent": {"urn": RIGHT, "severity": "error", "message": text}}
            (self.folder / "refusals" / str(number)).write_text(json.dumps(event) + "\n")

    @property
    def calls(self) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [" ".join(line.removeprefix(f"{self.program}: ").split()[:5]) for line in lines]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the configuration of stack ``gpu`` of the image program."""
    return Project(tmp_path, monkeypatch)


def test_the_update_is_repeated_until_azure_knows_role_and_identity(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.refuse("RoleDefinitionDoesNotExist", "PrincipalNotFound")
    images.build(Context(), stack="gpu")
    update = "up --yes --stack gpu --event-log"
    assert project.calls == ["stack ls --json --non-interactive", "stack init gpu", update, update, update]
    shown = capsys.readouterr().err
    for code in ("RoleDefinitionDoesNotExist", "PrincipalNotFound"):
        assert (
            f"RoleAssignment builder-right: Azure does not find yet what was just made ({code}); ret" in shown
        )


def test_any_other_refusal_ends_it_at_once(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.refuse("AuthorizationFailed", "AuthorizationFailed")
    with pytest.raises(Exit) as ended:
        images.build(Context(), stack="gpu")
    assert ended.value.code == 1
    assert len(project.calls) == 3
    assert "AuthorizationFailed: Not now." in capsys.readouterr().err


def test_what_continues_it_is_its_own_command(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.refuse("RoleDefinitionDoesNotExist")
    pulumi = project.folder / "bin" / "pulumi"
    pulumi.write_text(pulumi.read_text().replace("exit 1\n", "kill -KILL $$\n"))
    with pytest.raises(Exit):
        images.build(Context(), stack="gpu")
    removal = f"pulumi -C {project.program} destroy --stack gpu"
    message = f"`fab image.build --stack gpu` repairs its state and continues, `{removal}` removes all"
    assert message in capsys.readouterr().err


def test_it_waits_for_another_command_that_holds_this_programs_lock(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.folder / "stacks").write_text('[{"name": "gpu"}]')
    monkeypatch.setenv("PULUMI_BACKEND_URL", project.folder.as_uri())
    locks = project.folder / ".pulumi" / "locks" / "organization" / "ranklift-images" / "gpu"
    locks.mkdir(parents=True)
    lock = {"pid": os.getpid(), "hostname": socket.gethostname(), "username": "ann", "timestamp": ""}
    (locks / "1.json").write_text(json.dumps(lock))
    with pytest.raises(Exit):
        images.build(Context(), stack="gpu")
    assert f"another command is using it (process {os.getpid()} of ann" in capsys.readouterr().err
    (locks / "1.json").write_text(json.dumps({**lock, "hostname": "elsewhere"}))
    with pytest.raises(Exit):
        images.build(Context(), stack="gpu")
    cancel = f"`pulumi -C {project.program} cancel --stack gpu`"
    assert f"only if elsewhere was switched off meanwhile: {cancel}" in capsys.readouterr().err
    assert project.calls == ["stack ls --json --non-interactive"] * 2


@pytest.mark.parametrize(
    ("stack", "refusal"),
    [
        (None, "--stack: the image's stack is not named; give --stack NAME; `pulumi -C"),
        ("dev", "--stack = 'dev': has no Pulumi.dev.yaml in"),
    ],
)
def test_it_builds_only_what_was_described_for_images(
    project: Project, stack: str | None, refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exit) as ended:
        images.build(Context(), stack=stack)
    assert ended.value.code == 2
    assert refusal in capsys.readouterr().err
    assert not (project.folder / "calls").exists()


def test_a_dry_run_prints_the_update_and_runs_nothing(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    images.build(Context(), stack="gpu", dry_run=True)
    assert capsys.readouterr().out == f"pulumi -C {project.program} up --yes --stack gpu\n"
    assert not (project.folder / "calls").exists()


def test_advice_on_an_images_stack_names_its_own_commands() -> None:
    in_use = Trouble("Subnet nodes", "InUseSubnetCannotBeDeleted", "Subnet nodes is in use by /nic.")
    stack = ImageStack("gpu-images", Path(), {})
    text = str(UpdateFailed(stack, [in_use]))
    assert text.endswith(f"remove it, then `{stack.removal_command}`")
    assert "pulumi" in text
    assert "fab down" not in text
