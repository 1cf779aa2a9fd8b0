"""``fab config``, with Pulumi itself and its state in a folder."""

from __future__ import annotations

import io
import json
import os
import subprocess
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import yaml
from invoke.context import Context
from invoke.exceptions import Exit

from infra.config import edit
from playbooks.pulumi.config_task import config
from tests.playbooks.typed import fab, without_connections, write_project

SETTINGS = (
    ("vmSize", "Standard_ND40rs_v2"),
    ("nodeCount", "2"),
    ("location", "southcentralus"),
    ("sshFrom", "127.0.0.1/32"),
)
FULL = "config:\n" + "".join(f'  ranklift:{key}: "{value}"\n' for key, value in SETTINGS)


class Own:
    """A project with a stack ``dev``, and what commands in it print."""

    def __init__(self, top: Path) -> None:
        self.project = top / "own"
        self.project.mkdir()
        write_project(self.project, fabfile=True)
        (top / "state").mkdir()
        self.environment = {
            "PULUMI_BACKEND_URL": (top / "state").as_uri(),
            "PULUMI_HOME": str(top / "pulumi-home"),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
        }

    @property
    def file(self) -> Path:
        return self.project / "Pulumi.dev.yaml"

    def pulumi(self, *words: str) -> None:
        environment = {**os.environ, **self.environment}
        subprocess.run(["pulumi", *words], cwd=self.project, env=environment, check=True, capture_output=True)

    def config(self, *words: str, status: int = 0, env: dict[str, str] | None = None) -> tuple[str, str]:
        """Stdout and stderr of ``fab config`` with these words."""
        ran = fab(self.project, "config", *words, env={**self.environment, **(env or {})})
        assert ran.returncode == status, ran
        assert "Traceback" not in ran.stderr
        return ran.stdout, ran.stderr

    def settings(self) -> dict[str, Any]:
        return dict(yaml.safe_load(self.file.read_text()).get("config") or {})


def refused(project: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What ``fab config`` with these words prints on stderr, in this process, where no Pulumi is found."""
    monkeypatch.setenv("RANKLIFT_PROJECT", str(project))
    monkeypatch.setenv("RANKLIFT_STACK", "dev")
    monkeypatch.setenv("PATH", "/nowhere")
    flags = {one: True for one in ("path", "secret") if f"--{one}" in words}
    stderr = io.StringIO()
    with redirect_stderr(stderr), pytest.raises(Exit) as caught:
        config(Context(), [one for one in words if not one.startswith("--")], **flags)
    assert caught.value.code == 2
    return stderr.getvalue()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the settings of a stack ``dev``, of which Pulumi is not asked."""
    write_project(tmp_path)
    (tmp_path / "Pulumi.dev.yaml").write_text(FULL)
    return tmp_path


@pytest.fixture
def own(tmp_path: Path) -> Own:
    made = Own(tmp_path)
    made.pulumi("stack", "init", "dev")
    return made


@pytest.fixture
def configured(own: Own) -> Own:
    """The stack has all that it needs, below a comment."""
    own.file.write_text(f"# of the vision team\n{FULL}{own.file.read_text()}")
    return own


def test_a_new_stack_gets_its_first_settings_one_by_one(own: Own) -> None:
    left = [key for key, _ in SETTINGS]
    for key, value in SETTINGS:
        out, err = own.config("set", key, value)
        left.remove(key)
        assert out == f"set ranklift:{key} in Pulumi.dev.yaml\n"
        assert err == (f"still to be set: {', '.join(left)}\n" if left else "")
    assert own.settings() == {f"ranklift:{key}": value for key, value in SETTINGS}
    rows = own.config()[0].splitlines()[2:]
    assert {row.split()[0]: row.split()[1] for row in rows} == dict(SETTINGS)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["vmSize", "Standard_NC24s_v3"], "the nearest fit is Standard_ND40rs_v2"),
        (["ranklift:nodeCount", "0"], "ranklift:nodeCount = 0: must be at least 1"),
        (["sshFrom", "0.0.0.0/0"], "would open ssh to the world"),
        (["monitor", "true"], "needs ranklift:metricsPort"),
        (["retainData", "true"], "has nothing to keep"),
        (["--path", "tags.a%", "x"], "is not a tag name"),
        (["tags", "[1]"], "is not a mapping of names to strings"),
        (["vmsize", "x"], "key = 'vmsize': unknown setting; did you mean vmSize?"),
        (["tags.team", "x"], "is a path into tags; give --path"),
        (["azure-native:environment", "usgovernment"], "only the public one is supported"),
        (["zone", ""], "is empty; fab config rm zone removes the setting"),
        (["nodeCount=3"], "type fab config set nodeCount 3"),
        (["nodeCount"], "type fab config set nodeCount VALUE"),
        (["tags", "a", "b"], "takes KEY and VALUE, not 3 words; put a value with blanks in quotes"),
        (["--secret", "vmSize"], "is no secret; leave --secret out"),
        (["azure-native:clientSecret", "x"], "is a secret; run fab config set --secret azure-native:clientS"),
        (["--secret", "azure-native:clientSecret", "x"], "other users and the shell's history see it"),
    ],
)
def test_what_up_would_refuse_is_refused_before_pulumi_writes_it(
    project: Path, words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem in refused(project, ["set", *words], monkeypatch)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nodeCount", "3"], "did you mean fab config set nodeCount 3?"),
        (["nodeCount=3"], "did you mean fab config set nodeCount 3?"),
        (["nodeCount"], "did you mean fab config get nodeCount?"),
        (["get", "zone"], "ranklift:zone: is not set; `fab config` lists what is"),
        (["get", "zoen"], "did you mean zone?"),
        (["rm", "zone"], "is not set"),
        (["rm"], "type fab config rm KEY"),
        (["rm", "zone", "--secret"], "belongs to fab config set"),
    ],
)
def test_words_that_are_no_action_are_refused(
    project: Path, words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem in refused(project, words, monkeypatch)


def test_comments_and_other_settings_stay(configured: Own) -> None:
    configured.config("set", "nodeCount", "3")
    assert configured.file.read_text().startswith("# of the vision team\nconfig:\n")
    assert configured.settings()["ranklift:nodeCount"] == "3"
    configured.config("set", "tags", '{"team": "vision"}')
    assert configured.config("get", "tags")[0] == '{"team": "vision"}\n'
    assert configured.config("rm", "ranklift:tags")[0] == "removed ranklift:tags in Pulumi.dev.yaml\n"
    assert len(configured.settings()) == len(SETTINGS)
    assert configured.config("rm", "location")[1] == "still to be set: location\n"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tags.team", "data"),  # which is a task's name
        ("tags.team", "true"),
        ("tags.team", "007"),
        ("ranklift:tags.team", "42"),
        ('tags["cost center"]', "a=b c"),
        ("dataOperators[0]", "00000000-0000-0000-0000-00000000000b"),
    ],
)
def test_what_is_checked_is_what_pulumi_then_writes(configured: Own, path: str, value: str) -> None:
    configured.config("set", "storage", "serviceEndpoint")
    before = configured.settings()
    name, steps = edit.steps_of(path)
    configured.config("set", "--path", path, value)
    assert configured.settings() == edit.changed(before, edit.full_key(name), steps, value)
    assert configured.config("get", "--path", path)[0].strip('"\n') == value
    configured.config("rm", "--path", path)
    emptied = edit.removed(
        edit.changed(before, edit.full_key(name), steps, value), edit.full_key(name), steps
    )
    assert configured.settings() == emptied


def test_several_mistakes_are_corrected_one_after_the_other(own: Own) -> None:
    own.file.write_text(FULL.replace('"2"', '"0"').replace("southcentralus", "?") + "  ranklift:zoen: '1'\n")
    listed = own.config()[1]
    assert [line.split()[1] for line in listed.splitlines()] == [
        "ranklift:zoen",
        "ranklift:nodeCount",
        "ranklift:location",
    ]
    assert "still wrong: ranklift:location = '?'" in own.config("set", "nodeCount", "2")[1]
    assert "must be at least 1" in own.config("set", "nodeCount", "0", status=2)[1]
    assert "still wrong: ranklift:zoen" in own.config("set", "location", "westeurope")[1]
    assert own.config("rm", "zoen")[1] == ""


def test_a_secret_is_encrypted_and_never_shown(configured: Own) -> None:
    ran = subprocess.run(
        ["fab", "config", "set", "--secret", "azure-native:clientSecret"],
        cwd=configured.project,
        env={**os.environ, **configured.environment, "RANKLIFT_STACK": "dev"},
        input="s3cr3t word\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "s3cr3t" not in ran.stdout + ran.stderr + configured.file.read_text()
    environment = {**os.environ, **configured.environment}
    shown = subprocess.check_output(
        ["pulumi", "config", "get", "azure-native:clientSecret", "--stack", "dev"],
        cwd=configured.project,
        env=environment,
    )
    assert shown == b"s3cr3t word\n"
    row = next(line for line in configured.config()[0].splitlines() if "clientSecret" in line)
    assert row.split()[:2] == ["azure-native:clientSecret", "[secret]"]
    assert (
        "is encrypted; `pulumi config get"
        in configured.config("get", "azure-native:clientSecret", status=2)[1]
    )
    listed = json.loads(configured.config("--json")[0])
    assert [(one["value"], one["secret"]) for one in listed if "client" in one["key"]] == [(None, True)]


def test_each_setting_is_listed_with_its_place(configured: Own) -> None:
    project = configured.project / "Pulumi.yaml"
    project.write_text(f'{project.read_text()}config:\n  zone: "1"\n  nodeCount: 7\n')
    places = {
        one["key"]: (one["value"], one["file"], one["line"])
        for one in json.loads(configured.config("--json")[0])
    }
    assert places["ranklift:zone"] == ("1", str(project), 5)
    assert places["ranklift:nodeCount"] == ("2", str(configured.file), 4)
    assert "is set in Pulumi.yaml:5 for all stacks" in configured.config("rm", "zone", status=2)[1]


def test_an_unknown_stack_is_refused_with_the_command_that_makes_it(configured: Own) -> None:
    ran = fab(
        configured.project,
        *["config", "set", "nodeCount", "3", "--stack", "other"],
        env=configured.environment,
    )
    assert ran.returncode == 2
    assert "Pulumi has no such stack; make it first: `pulumi stack init other`" in ran.stderr
    assert not (configured.project / "Pulumi.other.yaml").exists()


def test_a_dry_run_checks_and_asks_nobody(configured: Own, tmp_path: Path) -> None:
    before = configured.file.read_text()
    guard = without_connections(tmp_path)
    out, _ = configured.config("set", "nodeCount", "3", "--dry-run", env=guard)
    assert out == "pulumi config set --plaintext ranklift:nodeCount 3 --stack dev\n"
    assert (
        "must be at least 1"
        in configured.config("set", "nodeCount", "0", "--dry-run", status=2, env=guard)[1]
    )
    out, _ = configured.config("rm", "zone", "--dry-run", status=2, env=guard)
    assert (out, configured.file.read_text()) == ("", before)
    out, _ = configured.config("set", "--secret", "azure-native:oidcToken", "--dry-run", env=guard)
    assert out == "pulumi config set --secret azure-native:oidcToken --stack dev\n"
