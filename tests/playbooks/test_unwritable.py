"""Commands whose ``.ranklift`` cannot be written end with one line: the path and the remedy."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.errors import InputError
from playbooks.project import Stack
from playbooks.unwritable import unwritable
from tests.playbooks.typed import ROOT

PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from invoke.context import Context
from invoke.exceptions import Exit
from infra.inventory import Inventory, StackOutputs, save
from playbooks.cli.task import command
from playbooks.node_price import save_price
from playbooks.project import Stack

stack = Stack("dev", Path(sys.argv[1]), {})

@command("write", example="fab write")
def write(context):
    '''Write as commands do.'''
    if sys.argv[2] == "scratch":
        with stack.scratch():
            print("changed something")
    elif sys.argv[2] == "inventory":
        save(None, None, stack.folder)
    else:
        save_price(stack, "size", "location", 1.0, spot=False)

try:
    write(Context())
except Exit as ended:
    sys.exit(ended.code)
"""
WRITERS = pytest.mark.parametrize("writer", ["scratch", "inventory", "price"])


def run(project: Path, writer: str, before: str = "true") -> subprocess.CompletedProcess[str]:
    """A command that writes there, by a user without root's rights, after a line for the shell."""
    argv = [sys.executable, "-c", PROGRAM, str(project), writer]
    user = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"]
    line = f"{before} && exec {shlex.join([*user, 'unshare', '--user', *argv])}"
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", line],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@WRITERS
@pytest.mark.parametrize("place", [".ranklift", ".ranklift/dev"])
def test_a_file_in_the_folders_place_is_named_with_what_to_do(
    tmp_path: Path, writer: str, place: str
) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    ran = run(tmp_path, writer)
    assert (ran.returncode, ran.stdout) == (2, "")
    remedy = f"move it away: mv {path} {path}.old"
    assert ran.stderr == f"error: {path}: is no folder, and files of stacks are kept there; {remedy}\n"


@pytest.mark.parametrize(
    ("writer", "place"),
    [
        *((writer, ".ranklift") for writer in ("scratch", "inventory", "price")),
        *((writer, ".ranklift/dev") for writer in ("scratch", "price")),
    ],
)
def test_a_folder_that_the_user_may_not_write_is_named_with_its_owner(
    tmp_path: Path, writer: str, place: str
) -> None:
    path = tmp_path / place
    path.mkdir(parents=True)
    path.chmod(0o555)
    ran = run(tmp_path, writer)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {path}: cannot be used (Permission denied; it belongs to ")
    assert ran.stderr.endswith(f" {path}\n")
    assert len(ran.stderr.splitlines()) == 1


@WRITERS
def test_a_read_only_file_system_is_named(tmp_path: Path, writer: str) -> None:
    path = tmp_path / ".ranklift"
    (path / "dev").mkdir(parents=True)
    quoted = shlex.quote(str(path))
    ran = run(tmp_path, writer, f"mount --bind {quoted} {quoted} && mount -o remount,bind,ro {quoted}")
    assert (ran.returncode, ran.stdout) == (2, "")
    remedy = "mount it writable, or work in a checkout elsewhere"
    assert ran.stderr == f"error: {path}/dev: is on a read-only file system; {remedy}\n"


def test_a_folder_in_a_files_place_is_named(tmp_path: Path) -> None:
    inventory = tmp_path / ".ranklift/dev/inventory.json"
    inventory.mkdir(parents=True)
    error = unwritable(IsADirectoryError(21, "Is a directory", str(inventory)))
    assert str(error).startswith(f"{inventory}: is a folder, and a file is kept there; move it away: mv ")


def test_nothing_is_left_behind_where_a_stacks_folder_does_not_exist_yet(tmp_path: Path) -> None:
    with Stack("dev", tmp_path, {}).scratch():
        assert not (tmp_path / ".ranklift/dev").exists()


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "/home/ann/results"),
        FileNotFoundError(2, "No such file or directory", "/p/.ranklift/dev/id"),
        OSError("no number"),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
def test_other_failures_stay_what_they_are(error: OSError) -> None:
    assert unwritable(error) is None


def test_a_command_of_pulumis_is_refused_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / ".ranklift").mkdir()
    (tmp_path / ".ranklift/dev").write_text("")
    with pytest.raises(InputError, match="is no folder"), Stack("dev", tmp_path, {}).scratch():
        pytest.fail("the command began")
