"""Scratch folders of commands: in the project, and gone with the command or with the next one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from invoke.context import Context

from playbooks import rehearsal
from playbooks.pulumi.scratch import scratch
from rehearsal import control

COMMAND = """
import sys, time
from pathlib import Path
from playbooks.pulumi.scratch import scratch
with scratch(Path(sys.argv[1])) as folder:
    (folder / "events").write_text("{}")
    print(folder, flush=True)
    time.sleep(600)
"""


@contextmanager
def at_work(project: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """Another command with a scratch folder."""
    line = [sys.executable, "-c", COMMAND, str(project)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Path(process.stdout.readline().strip()), process
        finally:
            process.kill()


def left(project: Path) -> list[Path]:
    return list((project / ".ranklift").iterdir())


def test_it_goes_with_its_command_and_is_nobody_elses(tmp_path: Path) -> None:
    with scratch(tmp_path) as one, scratch(tmp_path) as other:
        assert one.parent == other.parent == tmp_path / ".ranklift"
        assert (one != other, one.stat().st_mode & 0o777) == (True, 0o700)
        (one / "events").write_text("{}")
    assert left(tmp_path) == []


def test_the_next_command_removes_what_a_killed_one_left_and_nothing_of_a_live_one(tmp_path: Path) -> None:
    with at_work(tmp_path) as (of_killed, process), at_work(tmp_path) as (of_live, _):
        process.kill()
        process.wait()
        assert (of_killed / "events").exists()
        with scratch(tmp_path) as own:
            assert set(left(tmp_path)) == {of_live, own}


@pytest.mark.parametrize("task", ["start", "stop"])
def test_so_do_the_start_and_the_end_of_a_rehearsal(
    tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def during(*_: object) -> object:
        assert left(tmp_path) == []
        raise RuntimeError("far enough")

    monkeypatch.setattr(rehearsal, "project_of", lambda _: tmp_path)
    monkeypatch.setattr(control, task, during)
    with at_work(tmp_path) as (_, process):
        process.kill()
        process.wait()
    with pytest.raises(RuntimeError, match="far enough"):
        getattr(rehearsal, task).body(Context())
