"""Fabric's own options and settings: refused where a task of ours would not obey them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabric.main import Fab
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from launch.errors import InputError
from playbooks.cli.core_options import refuse_without_effect
from tests.playbooks.typed import fab, fake_pulumi, write_project

FABFILE = """\
from invoke import task
from playbooks import ns

@task
def mine(context):
    context.run("echo a'l'ive")

@task(pre=[ns["down"]])
def before(context):
    pass

ns.add_task(mine)
ns.add_task(before)
"""


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A project whose fabfile has tasks of its user's, too; its Pulumi notes that it was called."""
    folder = tmp_path / "project"
    folder.mkdir()
    write_project(folder, "dev")
    (folder / "fabfile.py").write_text(FABFILE)
    return folder


def pulumi(workplace: Path) -> dict[str, str]:
    return {**fake_pulumi(workplace.parent, 'echo "$@" >> "$0.calls"'), "HOME": str(workplace.parent)}


@pytest.mark.parametrize(
    "words",
    [
        ["-R", "down", "--yes"],
        ["down", "--yes", "-R"],
        ["-eR", "down", "--yes"],
        ["mine", "-R", "down", "--yes"],
        ["down", "--yes", "mine", "-R"],
        ["status", "-R", "down", "--yes"],
    ],
)
def test_a_dry_run_that_would_be_none_is_refused_before_anything_runs(
    workplace: Path, words: list[str]
) -> None:
    ran = fab(workplace, *words, env=pulumi(workplace))
    assert (ran.returncode, ran.stdout) == (2, "")
    own = "give the task's own: fab down --dry-run"
    assert ran.stderr == f"error: option = '-R': has no effect on down; {own}\n"
    assert not (workplace.parent / "bin/pulumi.calls").exists()


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("dry", True, "give the task's own: fab down --dry-run"),
        ("hosts", "a", "give the task's own: fab exec --nodes"),
        ("connect-timeout", 3, "give the task's own: fab down --timeout"),
        ("command-timeout", 3, "give the task's own: fab down --timeout"),
        *(
            (name, True, "leave it out: it is for tasks of your own that call run() or sudo()")
            for name in ("echo", "pty", "warn-only", "hide", "prompt-for-sudo-password")
        ),
        *(
            (name, "file", "leave it out: nodes are reached with the stack's own keys and ssh_config alone")
            for name in ("identity", "ssh-config", "prompt-for-login-password", "prompt-for-passphrase")
        ),
        ("no-dedupe", True, "leave it out: a task that is named twice runs twice"),
        ("list-agent-keys", True, "give it alone"),
        ("list-depth", 2, "give it with --list"),
        ("list-format", "json", "give it with --list"),
    ],
)
def test_an_option_that_no_task_of_ours_obeys_is_refused_with_what_does_it(
    option: str, value: object, remedy: str
) -> None:
    program = Fab()
    core = ParserContext(args=[*program.core_args(), *program.task_args()])
    down = ParserContext("down", args=[Argument("dry-run", kind=bool), Argument("timeout")])
    run = ParserContext("exec", args=[Argument("nodes")])
    refuse_without_effect(core.args, [down, run], [])
    core.args[option].set_value(value, cast=False)
    refuse_without_effect(core.args, [], ["mine"])
    with pytest.raises(InputError, match="has no effect on ") as caught:
        refuse_without_effect(core.args, [down, run], [f"--{option}=x", "down", "exec"])
    assert (caught.value.value, caught.value.remedy) == (f"--{option}", remedy)


def test_a_users_own_task_keeps_them(workplace: Path) -> None:
    ran = fab(workplace, "-R", "mine", env=pulumi(workplace))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "a'l'ive" in ran.stdout
    assert fab(workplace, "mine", "--hide=both").stdout == ""
    assert fab(workplace, "mine").stdout == "alive\n"


@pytest.mark.parametrize("words", [["-R", "--help", "down"], ["down", "--help", "-R"], ["-R", "--list"]])
def test_help_and_lists_run_nothing_and_need_no_refusal(workplace: Path, words: list[str]) -> None:
    ran = fab(workplace, *words)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_task_of_ours_that_a_users_task_runs_first_does_not_pretend_either(workplace: Path) -> None:
    ran = fab(workplace, "-R", "before", env=pulumi(workplace))
    assert ran.returncode == 2
    assert "error: run.dry = True: asks for a dry run, which no setting makes of this task" in ran.stderr
    assert not (workplace.parent / "bin/pulumi.calls").exists()


@pytest.mark.parametrize("variable", ["FABRIC_RUN_DRY", "INVOKE_RUN_DRY"])
def test_a_variable_that_asks_for_a_dry_run_is_refused(workplace: Path, variable: str) -> None:
    ran = fab(workplace, "down", "--yes", env={**pulumi(workplace), variable: "1"})
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {variable} = '1': asks for a dry run")
    assert not (workplace.parent / "bin/pulumi.calls").exists()
    assert "asks for a dry run" not in fab(workplace, "exec", "ls", env={variable: "0"}).stderr


@pytest.mark.parametrize(
    ("place", "words"),
    [("project/fabric.yaml", ()), (".fabric.yaml", ()), ("other.yaml", ("-f", "../other.yaml"))],
)
def test_a_file_that_asks_for_a_dry_run_is_refused_by_its_name(
    workplace: Path, place: str, words: tuple[str, ...]
) -> None:
    (workplace.parent / place).write_text("run: {dry: true}\n")
    ran = fab(workplace, *words, "down", "--yes", env=pulumi(workplace))
    assert (ran.returncode, ran.stdout) == (2, "")
    name = words[1] if words else str(workplace.parent / place)
    assert ran.stderr.startswith(f"error: run.dry of {name} = True: asks for a dry run")
    assert not (workplace.parent / "bin/pulumi.calls").exists()


def test_the_help_of_fab_itself_shows_what_has_an_effect(tmp_path: Path) -> None:
    shown = fab(tmp_path, "-h").stdout
    assert all(f"--{option}" in shown for option in ("config", "list", "debug", "version"))
    for option in (
        "--dry",
        "--hosts",
        "--hide",
        "--echo",
        "--pty",
        "--identity",
        "--no-dedupe",
        "--prompt-for",
    ):
        assert option not in shown
