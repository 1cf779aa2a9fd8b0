"""Which project and which stack, and what Pulumi is asked."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from launch.errors import InputError, MissingTool, StepTimeout
from playbooks import project, pulumi_query
from playbooks.project import PulumiError, Stack, find_project, open_stack
from tests.playbooks.typed import fake_pulumi

PULUMI_YAML = "name: ranklift\nruntime: python\nmain: infra\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ranklift"
    made.mkdir()
    (made / "Pulumi.yaml").write_text(PULUMI_YAML)
    return made


def test_configured_is_relative_to_the_fabfile_and_wins(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKLIFT_PROJECT", "/nowhere")
    own = tmp_path / "own"
    own.mkdir()
    assert find_project("../ranklift", own) == folder


def test_then_the_environment_then_the_folders_above(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(folder / "a" / "b")
    assert find_project(None, None) == folder
    other = tmp_path / "other"
    other.mkdir()
    (other / "Pulumi.yaml").write_text(PULUMI_YAML)
    monkeypatch.setenv("RANKLIFT_PROJECT", str(other))
    assert find_project(None, None) == other


def test_another_pulumi_project_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: ranklift-web\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="RANKLIFT_PROJECT"):
        find_project(None, None)
    with pytest.raises(InputError, match=r"ranklift\.project = '\.'"):
        find_project(".", tmp_path)


def test_the_flag_wins_over_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKLIFT_STACK", "prod")
    assert open_stack(folder, "dev").name == "dev"
    assert open_stack(folder, None).name == "prod"
    assert open_stack(folder, "me/ranklift/dev").folder == folder / ".ranklift" / "dev"


@pytest.mark.parametrize("name", ["../up", "a b", "..", "x/..", "-x/../y", "a//b", ".hidden", "größe", ""])
def test_a_name_that_no_stack_can_have_is_refused_whatever_else_is_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An empty one too: of an unset variable, it would be another cluster that `fab down` removes."""
    monkeypatch.setenv("RANKLIFT_STACK", "prod")
    with pytest.raises(
        InputError, match=f"--stack = '{name}': is not a stack's name; it has letters of ASCII"
    ):
        open_stack(folder, name)


def test_the_selected_stack_is_read_from_pulumis_note(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    home = folder / "pulumi-home"
    monkeypatch.setenv("PULUMI_HOME", str(home))
    digest = hashlib.sha1(str(folder / "Pulumi.yaml").encode()).hexdigest()
    note = home / "workspaces" / f"ranklift-{digest}-workspace.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"stack": "organization/ranklift/dev"}))
    monkeypatch.setenv("PATH", "/nowhere")
    assert open_stack(folder, None).name == "dev"


def test_without_a_note_pulumi_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = fake_pulumi(folder, '[ "$1 $2" = "stack --show-name" ] && echo asked')
    monkeypatch.setenv("PATH", environment["PATH"])
    assert open_stack(folder, None).name == "asked"


def test_no_stack_chosen_says_how_to_choose(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", fake_pulumi(folder, "echo error: no stack selected >&2; exit 1")["PATH"])
    with pytest.raises(InputError, match="pulumi stack select"):
        open_stack(folder, None)


def test_outputs_of_no_stack_of_one_that_is_down_and_of_none_at_all(folder: Path) -> None:
    missing = fake_pulumi(folder, "echo \"error: no stack named 'dev' found\" >&2; exit 6")
    with pytest.raises(InputError, match="Pulumi has no such stack"):
        Stack("dev", folder, missing).outputs()
    with pytest.raises(InputError, match="Pulumi has no such stack"):
        Stack("dev", folder, missing).state()
    with pytest.raises(InputError, match="not up"):
        Stack("dev", folder, fake_pulumi(folder, "echo '{}'")).outputs()
    with pytest.raises(PulumiError, match=r"^pulumi stack output: passphrase must be set$"):
        broken = fake_pulumi(folder, "echo error: passphrase must be set >&2; exit 255")
        Stack("dev", folder, broken).outputs()
    with pytest.raises(MissingTool, match="pulumi is missing"):
        Stack("dev", folder, {"PATH": "/nowhere"}).outputs()


def test_a_stack_that_pulumi_cannot_look_for_since_it_is_signed_in_nowhere(folder: Path) -> None:
    shown = "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
    stack = Stack("dve", folder, fake_pulumi(folder, f"echo '{shown}' >&2; exit 255"))
    (folder / ".ranklift/dev").mkdir(parents=True)
    (folder / ".ranklift/dev/inventory.json").touch()
    for ask in (stack.outputs, stack.exists, stack.preview):
        with pytest.raises(PulumiError) as caught:
            ask()
        assert str(caught.value) == (
            "stack dve: Pulumi is not signed in and cannot look for it; run `pulumi login`, or give another "
            "stack: did you mean dev? else known here: dev; see `pulumi stack ls`"
        )
    stack.configuration.touch()
    with pytest.raises(PulumiError, match=r"look for it; run `pulumi login`$"):
        stack.state()


def test_a_stack_that_was_renamed_is_looked_up_before_anything_else(folder: Path) -> None:
    (folder / ".ranklift/dev").mkdir(parents=True)
    (folder / ".ranklift/dev/inventory.json").touch()
    (folder / "Pulumi.prod.yaml").touch()
    with pytest.raises(InputError, match=r"run `fab status --stack prod` if it is up, else `fab up --stack"):
        Stack("prod", folder, {}).saved()
    former = Stack("dev", folder, fake_pulumi(folder, "echo error: no stack named dev found >&2; exit 255"))
    with pytest.raises(InputError, match=r"'dev': Pulumi has no such stack; see `pulumi stack ls`$"):
        former.outputs()


def test_a_question_has_a_time_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi_query, "QUERY_S", 0.2)
    with pytest.raises(StepTimeout, match="pulumi: stack output did not end"):
        Stack("dev", folder, fake_pulumi(folder, "exec sleep 5")).outputs()


def test_after_ctrl_c_a_question_ends_in_order(folder: Path) -> None:
    """Killed, Pulumi would leave its plugins running."""
    script = f"trap 'sleep 0.6; touch {folder}/ended; exit 1' INT; echo $$ > {folder}/pid; sleep 5 & wait"
    stack = Stack("dev", folder, fake_pulumi(folder, script))

    def interrupt() -> None:
        while not (folder / "pid").exists() or not (process := (folder / "pid").read_text()):
            time.sleep(0.01)
        time.sleep(0.4)  # the program runs before Popen returns
        for one in (int(process), os.getpid()):
            os.kill(one, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        stack.preview()
    interrupting.join()
    assert (folder / "ended").exists()


def test_a_rehearsed_stack_gets_the_rehearsals_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "_rehearsal", lambda _: {"PULUMI_BACKEND_URL": "file:///x"})
    for name, rehearsed in (
        ("rehearsal", True),
        ("rehearsal-2", True),
        ("rehearsals", False),
        ("dev", False),
    ):
        assert ("PULUMI_BACKEND_URL" in open_stack(folder, name).environment) is rehearsed


def test_a_rehearsed_stack_without_a_rehearsal_never_falls_through_to_azure(folder: Path) -> None:
    with pytest.raises(InputError, match=r"fab rehearsal\.start"):
        open_stack(folder, "rehearsal")


ODD_TAGS = ["a: !!bool x", "a: !!float ''", "a: !!timestamp x", "? [a]\n: b", "a: !!int ''"]


@pytest.mark.parametrize(
    "text", ["config: " + "[" * 5000, f"config: {{ranklift:nodeCount: {'9' * 5000}}}", "\0", *ODD_TAGS]
)
def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(text)
    with pytest.raises(InputError, match=r"configuration = '.*Pulumi\.dev\.yaml': is not YAML"):
        Stack("dev", tmp_path, {}).settings()


def test_a_pulumi_that_a_signal_ended_is_named(folder: Path, tmp_path: Path) -> None:
    stack = Stack("dev", folder, fake_pulumi(tmp_path, "kill -9 $$"))
    with pytest.raises(PulumiError, match="pulumi stack output: was killed by SIGKILL; repeat the command"):
        stack.outputs()
