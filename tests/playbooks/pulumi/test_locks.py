"""A lock of Pulumi's is taken away only where it is proved that whoever took it is gone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from playbooks.project import Stack
from playbooks.pulumi import recover
from playbooks.pulumi.locks import InUse, LockNote, locks
from tests.playbooks.typed import fake_pulumi

EMPTY = {"version": 3, "deployment": {"pending_operations": [], "resources": []}}


@dataclass(frozen=True)
class Locked:
    """Stack ``dev`` with a lock in the folder of its backend."""

    stack: Stack
    path: Path

    def recover(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recover, "pulumi", lambda _, words: pytest.fail(f"pulumi {words}"))
            recover.recover(self.stack)

    def refuses(self) -> str:
        """What is printed when the lock is respected."""
        with pytest.raises(InUse) as caught:
            self.recover()
        assert self.path.exists()
        return str(caught.value)


def locked(
    folder: Path, process: int, host: str | None = None, since: datetime | None = None, name: str = "0"
) -> Locked:
    backend = folder / "back end"
    path = backend / ".pulumi" / "locks" / "organization" / "ranklift" / "dev" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    time = (since or datetime.now(UTC)).isoformat().replace("+00:00", "Z")
    lock = {"pid": process, "hostname": host or socket.gethostname(), "username": "me", "timestamp": time}
    path.write_text(json.dumps(lock))
    environment = fake_pulumi(folder, f"echo '{json.dumps(EMPTY)}'")
    stack = Stack("me/ranklift/dev", folder, {**environment, "PULUMI_BACKEND_URL": backend.as_uri()})
    return Locked(stack, path)


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Pulumi that has another name, as Nix's wrapper gives it."""
    program = folder / ".pulumi-wrapped"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    with subprocess.Popen([program], start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, 9)


def test_the_lock_of_a_pulumi_by_another_name_is_respected(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        found = locked(tmp_path, process.pid)
        shown = found.refuses()
        assert f"is using it (process {process.pid} of me on {socket.gethostname()}, since " in shown
        assert "cancel" not in shown, "it lives"


def test_what_a_command_here_has_started_and_lost_is_taken_away(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        found = locked(tmp_path, process.pid)
        LockNote(found.stack, process.pid).update()
        found.refuses()
    found.recover()
    assert not found.path.exists()


def test_of_two_locks_only_the_one_that_is_left_is_taken_away(tmp_path: Path) -> None:
    """Another command may take its own in that very moment."""
    with running(tmp_path) as process:
        found = locked(tmp_path, process.pid)
        LockNote(found.stack, process.pid).update()
    other = locked(tmp_path, os.getpid(), name="1")
    other.refuses()
    assert found.path.exists()
    other.path.unlink()
    found.recover()


def test_a_number_that_nobody_has_here_is_no_proof(tmp_path: Path) -> None:
    """A container with the same host name has numbers of its own."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    shown = locked(tmp_path, ended.pid).refuses()
    assert f"no process {ended.pid} that is as old as the lock runs here" in shown
    cancel = f"`pulumi -C {tmp_path} cancel --stack me/ranklift/dev`"
    assert f"only if no command uses the stack any more: {cancel}" in shown


def test_a_process_that_is_younger_than_the_lock_did_not_take_it(tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(days=3650)
    shown = locked(tmp_path, os.getpid(), since=before).refuses()
    assert f"no process {os.getpid()} that is as old as the lock runs here" in shown


def test_one_that_was_killed_and_not_yet_waited_for_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as killed:
        found = locked(tmp_path, killed.pid)
        LockNote(found.stack, killed.pid).update()
        killed.kill()
        while ") Z " not in Path(f"/proc/{killed.pid}/stat").read_text():
            pass
        found.recover()
    assert not found.path.exists()


@pytest.mark.parametrize(
    "other", [{"namespace": "pid:[1]"}, {"host": "elsewhere"}, {"boot": "another"}, {"pid": 1}]
)
def test_a_note_of_another_container_or_machine_or_process_proves_nothing(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    with running(tmp_path) as process:
        found = locked(tmp_path, process.pid)
        LockNote(found.stack, process.pid).update()
    noted = json.loads(found.stack.lock_note.read_text())
    noted["process"].update(other)
    found.stack.lock_note.write_text(json.dumps(noted))
    found.refuses()


def test_a_note_of_another_lock_proves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        found = locked(tmp_path, process.pid)
        LockNote(found.stack, process.pid).update()
    found.path.unlink()
    locked(tmp_path, process.pid, name="1").refuses()


def test_the_lock_of_another_machine_is_respected(tmp_path: Path) -> None:
    shown = locked(tmp_path, 2**22, "elsewhere").refuses()
    assert f"only if elsewhere was switched off meanwhile: `pulumi -C {tmp_path} cancel" in shown


def test_backends_without_files_keep_no_lock_that_outlives_its_process(tmp_path: Path) -> None:
    assert locks(Stack("dev", tmp_path, {"PULUMI_BACKEND_URL": "https://api.pulumi.com"})) == ()
    assert locks(Stack("dev", tmp_path, {})) == ()


def test_the_note_goes_with_a_pulumi_that_ends(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        found = locked(tmp_path, process.pid)
        note = LockNote(found.stack, process.pid)
        note.update()
        note.remove()
        assert found.stack.lock_note.exists(), "the lock is still there"
        found.path.unlink()
        note.remove()
    assert not found.stack.folder.exists()
