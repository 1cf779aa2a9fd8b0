"""Which of Pulumi's output commands show, as users type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.infra.azure_answers import Azure, rehearsed, served
from tests.playbooks.typed import arguments, fab, fake_pulumi, write_project

SETTINGS = """\
config:
  ranklift:vmSize: Standard_ND40rs_v2
  ranklift:nodeCount: "4"
  ranklift:location: southcentralus
  ranklift:sshFrom: 203.0.113.7
"""
FAILS = {"diagnosticEvent": {"severity": "error", "message": "the program failed", "urn": ""}}
UPDATES = (
    'case "$1 $2" in "stack ls") echo "[]"; exit;; "up --yes") ;; *) exit;; esac\n'
    "echo 'Updating (new): table'; echo 'a warning' >&2\n"
    f'for log in "$@"; do :; done; echo \'{json.dumps(FAILS)}\' > "$log"; exit 7'
)
NO_PASSPHRASE = (
    'case "$1 $2" in "stack ls") echo "[]";; "stack init") [ -t 0 ] && exit 0\n'
    'echo "error: passphrase must be set with PULUMI_CONFIG_PASSPHRASE" >&2; exit 255;; esac'
)


def up(folder: Path, script: str, *options: str) -> tuple[int, str, str]:
    """What ``fab up`` of a new stack prints, with this Pulumi."""
    write_project(folder, "new", fabfile=True)
    (folder / "Pulumi.new.yaml").write_text(SETTINGS)
    with served(Azure()) as url:
        env = {**fake_pulumi(folder, script), **rehearsed(url, folder)}
        ran = fab(folder, "up", "--stack", "new", *options, env=env)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("task", ["up", "down", "scale", "replace"])
def test_all_commands_that_update_have_the_option(task: str) -> None:
    assert "verbose" in {one.name for one in arguments(task)}


def test_without_it_errors_are_shown_and_the_file_with_the_rest_is_named(tmp_path: Path) -> None:
    status, out, err = up(tmp_path, UPDATES)
    assert (status, out) == (7, "")
    assert "a warning\n" in err
    assert "error: the program failed\n" in err
    log = tmp_path / ".ranklift" / "new" / "pulumi.log"
    assert err.endswith(f"all that Pulumi printed is in {log}\n")
    assert "Updating (new): table\n" in log.read_text()


def test_with_it_all_of_it_is_shown(tmp_path: Path) -> None:
    status, out, err = up(tmp_path, UPDATES, "--verbose")
    assert (status, out) == (7, "Updating (new): table\n")
    assert "a warning\n" in err


def test_with_json_nothing_of_it_is_on_stdout(tmp_path: Path) -> None:
    status, out, err = up(tmp_path, UPDATES, "--verbose", "--json")
    assert (status, out) == (7, "")
    assert "Updating (new): table\n" in err


def test_a_passphrase_is_not_asked_for_and_its_variable_is_named(tmp_path: Path) -> None:
    status, _, err = up(tmp_path, NO_PASSPHRASE)
    assert status == 255
    assert "error: passphrase must be set with PULUMI_CONFIG_PASSPHRASE\n" in err
