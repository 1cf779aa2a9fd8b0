"""Which folder is pushed where none is named, and what is reported of it before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from launch.code.push import PushReport
from launch.code.snapshot import EMPTY, Snapshot, plan_snapshot
from playbooks.cli import output
from playbooks.nodes.push import push_notices, push_to, record_push, source_folder
from playbooks.project import Stack


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a folder ``src``, on a machine whose git is missing, or refuses another's files."""
    (tmp_path / "code/.git").mkdir(parents=True)
    (tmp_path / "code/.git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "code/src").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "code"


def test_it_is_the_repository_around_the_current_folder(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (repository / "src", repository, repository / ".git"):
        monkeypatch.chdir(folder)
        assert source_folder(None) == repository


def test_a_work_tree_has_a_file_in_that_place(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = repository / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {repository}/.git/worktrees/other\n")
    monkeypatch.chdir(other)
    assert source_folder(None) == other


def test_one_that_may_not_be_looked_into_is_one_all_the_same(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent == repository / ".git":
            raise PermissionError(13, "Permission denied", str(path))
        return looked(path)

    monkeypatch.setattr(Path, "is_file", is_file)  # root may look into everything
    monkeypatch.chdir(repository / "src")
    assert source_folder(None) == repository


def test_without_a_repository_it_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()  # nothing of git's is in it
    monkeypatch.chdir(tmp_path)
    assert source_folder(None) == tmp_path


def test_what_is_named_is_taken() -> None:
    assert source_folder("~/code") == Path.home() / "code"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    found = Stack("dev", tmp_path, {})
    found.folder.mkdir(parents=True)
    return found


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Code with a virtual environment in it."""
    folder = tmp_path / "code"
    for path in ("train.py", "env/pyvenv.cfg"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("12345")
    return folder


def sparse(path: Path, count: int) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(count)


def test_what_is_left_out_is_reported_once(stack: Stack, code: Path) -> None:
    line = "left out: env (5 B); a line like !env in .ranklift-ignore has it pushed"
    assert push_notices(stack, [plan_snapshot(code)]) == [line]
    assert push_notices(stack, [plan_snapshot(code)]) == [line], "a dry run records nothing"
    record_push(stack, plan_snapshot(code))
    assert push_notices(stack, [plan_snapshot(code)]) == []


def test_what_is_left_out_for_the_first_time_is_reported_alone(stack: Stack, code: Path) -> None:
    record_push(stack, plan_snapshot(code))
    (code / "src" / "__pycache__").mkdir(parents=True)
    (notice,) = push_notices(stack, [plan_snapshot(code)])
    assert notice.startswith("left out: __pycache__ (0 B); ")


def test_what_grew_is_reported_until_it_was_pushed(stack: Stack, code: Path) -> None:
    record_push(stack, plan_snapshot(code))
    sparse(code / "data" / "table", 120_000_000)
    line = f"{code} grew from 5 B to 120.0 MB since its last push; data: 120.0 MB"
    grown = plan_snapshot(code, stack.hashes_of(code))
    record_push(stack, grown, is_pushed=False)
    assert push_notices(stack, [grown]) == [line]
    record_push(stack, grown)
    assert push_notices(stack, [grown]) == []


def test_nothing_is_reported_of_a_job_without_code(stack: Stack) -> None:
    record_push(stack, EMPTY)
    assert push_notices(stack, [EMPTY]) == []
    assert list(stack.folder.iterdir()) == []


def test_sources_have_a_cache_each(stack: Stack, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushing another folder in between does not have the first one read again."""
    other = code.parent / "other"
    assert stack.hashes_of(code) != stack.hashes_of(other)
    assert stack.last_push_of(code) != stack.last_push_of(other)
    monkeypatch.chdir(code)
    assert stack.hashes_of(Path()) == stack.hashes_of(code)


def test_a_stack_that_is_removed_keeps_no_record(stack: Stack, code: Path) -> None:
    record_push(stack, plan_snapshot(code, stack.hashes_of(code)))
    stack.forget()
    assert not stack.folder.exists() or list(stack.folder.iterdir()) == []


def test_a_push_shows_its_progress_on_a_terminal_and_is_recorded(
    stack: Stack, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, int, int | None]] = []

    @contextmanager
    def progress_bar(_: str) -> Iterator[Callable[[str, int, int | None], None]]:
        yield lambda *now: shown.append(now)

    def send(snapshot: Snapshot, *_: object, verify: bool, show: Callable[[int, int], object]) -> PushReport:
        show(2, 5)
        return PushReport(snapshot.id, int(verify), 5, 0.1, {})

    monkeypatch.setattr(output, "progress_bar", progress_bar)
    monkeypatch.setattr("launch.code.push.push", send)
    nodes = cast("Any", ["a", "b"])
    assert push_to(stack, nodes[0], nodes, plan_snapshot(code), verify=True).files == 1
    assert shown == [("pushing to 2 nodes", 2, 5)]
    assert stack.last_push_of(code).exists()
