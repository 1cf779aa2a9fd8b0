"""`fab drain` notes on a node itself that no new job takes it; `fab undrain` removes the note."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.remote.base.names import drained_at
from launch.remote.node.slots import DRAINED, HOLDER_BYTES
from playbooks.nodes.drain import _BY_BYTES, _DRAIN, _REASON_BYTES, _UNDRAIN
from playbooks.nodes.health import _QUERY, Health
from tests.playbooks.server import SshServer, free_port, save_stack
from tests.playbooks.typed import fab, write_project


@pytest.fixture
def note(server: SshServer) -> Iterator[Path]:
    """The note of a drain in the home folder that both nodes share."""
    path = Path(f"{server.folder}/home{DRAINED}")
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def workplace(server: SshServer, tmp_path: Path) -> Path:
    """A project whose stack ``dev`` has nodes 0 and 1, and node 2, which does not answer."""
    write_project(tmp_path, "dev", fabfile=True)
    ports = {0: server.port, 1: server.port, 2: free_port()}
    save_stack(tmp_path / ".ranklift" / "dev", ports, server.host_key, server.user_key)
    return tmp_path


def test_the_note_names_the_time_and_the_operator_and_the_first_one_stays(
    workplace: Path, note: Path
) -> None:
    ran = fab(workplace, "drain", "0")
    assert (ran.returncode, ran.stderr) == (0, "")
    text = note.read_text().strip()
    assert re.fullmatch(r"drained \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ by \S+ on \S+", text)
    assert abs((drained_at(text) or 0.0) - time.time()) < 60
    assert ran.stdout == f"node000000: {text}\n"
    note.write_text("drained 2026-03-01T09:05:07Z by ann on desk\n")
    assert fab(workplace, "drain", "0-1").stdout == (
        "node[000000-000001]: drained 2026-03-01T09:05:07Z by ann on desk\n"
    )


REASON = "Xid 79 on GPU 5: `nvidia-smi -r` did not help, $HOME \\n \\\\ \"é'"


def test_a_reason_is_kept_and_shown_with_the_note(workplace: Path, note: Path) -> None:
    ran = fab(workplace, "drain", "0", "--reason", REASON)
    assert (ran.returncode, ran.stderr) == (0, "")
    text = note.read_text().strip()
    assert text.endswith(f": {REASON}")
    assert drained_at(text)
    assert ran.stdout == f"node000000: {text}\n"
    shown = subprocess.run(["sh", "-c", _QUERY], cwd=note.parent.parent, capture_output=True, check=False)
    assert Health.read(shown.stdout.decode(), 0.0, 0.0).drain == text
    again = fab(workplace, "drain", "0", "--reason", REASON)
    assert (again.returncode, again.stderr) == (0, "")


def test_the_longest_reason_of_the_longest_name_is_whole_as_a_slots_holder(
    workplace: Path, note: Path
) -> None:
    fab(workplace, "drain", "0", "--reason", "x" * _REASON_BYTES)
    assert note.read_text().strip().endswith(": " + "x" * _REASON_BYTES)
    assert len("drained 2026-03-01T09:05:07Z by : ") + _BY_BYTES + _REASON_BYTES <= HOLDER_BYTES


def test_another_reason_for_a_drained_node_is_not_lost_in_silence(workplace: Path, note: Path) -> None:
    note.parent.mkdir(exist_ok=True)
    note.write_text("drained 2026-03-01T09:05:07Z by ann on desk: slow\n")
    ran = fab(workplace, "drain", "0", "--reason", "hot")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert (
        "was drained before, and keeps its note: drained 2026-03-01T09:05:07Z by ann on desk: slow"
        in ran.stderr
    )
    assert note.read_text() == "drained 2026-03-01T09:05:07Z by ann on desk: slow\n"


@pytest.mark.parametrize("reason", ["", " ", "a\nb", "\x1b[2J", "x" * (_REASON_BYTES + 1)])
def test_a_reason_that_a_note_cannot_keep_is_refused(workplace: Path, note: Path, reason: str) -> None:
    ran = fab(workplace, "drain", "0", "--reason", reason)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: --reason = ")
    assert not note.exists()


def test_a_full_disk_keeps_no_part_of_a_note(tmp_path: Path) -> None:
    """A program that fails stands for the disk."""
    (tmp_path / "sync").write_text("#!/bin/sh\necho full >&2; exit 1\n")
    (tmp_path / "sync").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", _DRAIN, "sh", "ann"], cwd=tmp_path, env=env, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"full\n")
    assert list((tmp_path / ".ranklift").iterdir()) == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "link to a folder"])
def test_what_a_job_put_in_its_place_is_moved_aside(tmp_path: Path, kind: str) -> None:
    note = tmp_path / ".ranklift/drained"
    note.parent.mkdir()
    for script in (_DRAIN, _UNDRAIN):
        note.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(note)
        elif kind == "folder":
            note.mkdir()
        else:
            note.symlink_to("/dev/zero" if kind == "link" else tmp_path)
        done = subprocess.run(
            ["sh", "-c", script, "sh", "ann"], cwd=tmp_path, capture_output=True, check=True
        )
        assert done.stdout.startswith(b"drained")
    assert not os.path.lexists(note)
    assert len(list(note.parent.glob("drained.damaged-*"))) == 2


def test_undrain_removes_it_and_may_be_repeated(workplace: Path, note: Path) -> None:
    fab(workplace, "drain", "0")
    text = note.read_text().strip()
    assert fab(workplace, "undrain", "0").stdout == f"node000000: takes jobs again, was {text}\n"
    assert not note.exists()
    assert fab(workplace, "undrain", "0").stdout == "node000000: was not drained\n"


def test_a_node_that_does_not_answer_is_named_and_the_others_are_drained(workplace: Path, note: Path) -> None:
    ran = fab(workplace, "drain", "1-2", "--json")
    assert ran.returncode == 1
    assert json.loads(ran.stdout) == {"node000001": {"drain": note.read_text().strip(), "jobs": []}}
    assert "fab drain failed on 1 of 2 nodes\nnode000002: " in ran.stderr


def test_a_node_that_cannot_keep_it_is_not_said_to_be_drained(
    workplace: Path, server: SshServer, note: Path
) -> None:
    folder = note.parent
    folder.mkdir(exist_ok=True)
    folder.rename(folder.with_name("away"))
    folder.write_text("in the way")
    try:
        ran = fab(workplace, "drain", "0")
    finally:
        folder.unlink()
        folder.with_name("away").rename(folder)
    assert ran.returncode == 1
    assert "node000000: its note could not be changed: mkdir: " in ran.stderr
    assert ran.stdout == ""


def test_a_dry_run_and_an_unknown_node_connect_to_nothing(workplace: Path, note: Path) -> None:
    assert "node000002" in fab(workplace, "drain", "2", "--dry-run").stdout
    ran = fab(workplace, "drain", "9")
    assert ran.returncode == 2
    assert "nodes = '9': 9 is not a node of stack dev" in ran.stderr
    assert not note.exists()
