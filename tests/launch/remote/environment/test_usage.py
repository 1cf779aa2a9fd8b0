"""What killed builds and removed images leave on a node goes, and nothing that is in use."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.client.environments import held_on
from launch.remote.base.files import hold
from launch.remote.base.job_dir import TERMINAL
from launch.remote.environment.usage import (
    clear_debris,
    keep_downloads,
    list_environments,
    remove_environments,
)
from launch.remote.store.locks import locked
from launch.remote.store.store import ENVIRONMENTS, Store
from tests.launch.remote.spoilt import NO_FILES, NO_JSON, text

WHOLE, HALF = "0123456789abcdef", "00000000000000aa"
DOCKER = """#!/bin/sh
echo "$@" >> "$HOME/calls"
[ "$2" = ls ] && echo ranklift/0123456789abcdef && echo ranklift/00000000000000bb
exit 0
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A whole environment, and what a killed build has left of another one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    made = Store(kind=ENVIRONMENTS)
    for name in (WHOLE, HALF):
        (Path(made.path(name)) / "lib").mkdir(parents=True)
    Path(made.path(WHOLE) + ".manifest").write_text("[]")
    return made


def there(store: Store) -> set[str]:
    return {name for name in (WHOLE, HALF) if Path(store.path(name)).exists()}


def test_what_a_killed_build_has_left_goes_once_no_tool_of_it_is_at_work(store: Store) -> None:
    with (Path(store.folder) / f".lock-{HALF}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        clear_debris(store)
        assert there(store) == {WHOLE, HALF}
    clear_debris(store)
    assert there(store) == {WHOLE}


def test_pruning_removes_it_too(store: Store) -> None:
    remove_environments([], cache=True)
    assert there(store) == {WHOLE}


def test_docker_keeps_no_image_whose_environment_is_gone(store: Store, tmp_path: Path) -> None:
    (tmp_path / "bin/docker").write_text(DOCKER)
    (tmp_path / "bin/docker").chmod(0o755)
    remove_environments([], cache=False)
    remove_environments([WHOLE], cache=False)
    removed = [line for line in (tmp_path / "calls").read_text().splitlines() if " rm " in line]
    assert removed == [
        "image rm ranklift/00000000000000bb",
        "image rm ranklift/0123456789abcdef",
        "image rm ranklift/00000000000000bb",
    ]


def test_an_environment_of_a_job_stays(store: Store, tmp_path: Path) -> None:
    job = tmp_path / ".ranklift/jobs/train-1"
    job.mkdir(parents=True)
    (job / "job.json").write_text(json.dumps({"environment": {"id": WHOLE}}))
    assert remove_environments([WHOLE], cache=True)["kept"] == {WHOLE: ["train-1"]}
    assert there(store) == {WHOLE}


def test_an_environment_that_a_process_holds_stays(store: Store) -> None:
    with os.fdopen(hold(store.path(WHOLE))):
        assert remove_environments([WHOLE], cache=False)["kept"] == {WHOLE: []}
        assert store.has(WHOLE)
    assert remove_environments([WHOLE], cache=False)["kept"] == {}
    with pytest.raises(FileNotFoundError):
        hold(store.path(WHOLE))


def test_what_a_launch_makes_or_sends_stays_with_the_downloads_it_needs(store: Store, tmp_path: Path) -> None:
    package = tmp_path / ".ranklift/cache/uv/package"
    package.mkdir(parents=True)
    with keep_downloads(store), locked(store, WHOLE, lambda: None):
        answer = remove_environments([WHOLE, HALF], cache=True)
        assert answer == {"kept": {WHOLE: []}, "is_cache_kept": True}
        assert store.has(WHOLE)
        assert package.exists()
    assert remove_environments([WHOLE], cache=True) == {"kept": {}, "is_cache_kept": False}
    assert not package.exists()


def test_downloads_stay_for_a_tool_that_has_outlived_its_build(store: Store, tmp_path: Path) -> None:
    (tmp_path / ".ranklift/cache").mkdir()
    with (Path(store.folder) / f".lock-{HALF}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert remove_environments([], cache=True)["is_cache_kept"]
    assert not remove_environments([], cache=True)["is_cache_kept"]


def test_files_that_others_share_keep_their_modes(store: Store, tmp_path: Path) -> None:
    """uv's cache and other environments have the same files: writable ones would count as changed."""
    shared = Path(store.path(WHOLE)) / "lib/shared"
    shared.write_text("x")
    shared.chmod(0o444)
    (tmp_path / "other").hardlink_to(shared)
    shared.parent.chmod(0o555)
    remove_environments([WHOLE], cache=False)
    assert not Path(store.path(WHOLE)).exists()
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o444


def test_what_a_queued_job_needs_is_neither_removed_nor_pruned(store: Store, tmp_path: Path) -> None:
    job = tmp_path / ".ranklift/jobs/train-1"
    job.mkdir(parents=True)
    (job / "job.json").write_text(json.dumps({"environment": {"id": WHOLE}}))
    (job / "state.json").write_text(json.dumps({"state": "QUEUED"}))
    Path(store.path(WHOLE) + ".nodes").write_text("{}")
    os.utime(store.path(WHOLE) + ".manifest", (1, 1))
    newer = [f"{number:016}" for number in range(4)]
    for name in newer:
        Path(store.path(name)).mkdir()
        Path(store.path(name) + ".manifest").write_text("[]")
    assert remove_environments([WHOLE], cache=False)["kept"] == {WHOLE: ["train-1"]}
    assert store.superfluous(newer[0]) == []
    (job / "state.json").write_text(json.dumps({"state": "RUNNING", "pending": {"state": "SUCCEEDED"}}))
    assert store.superfluous(newer[0]) == []  # its outputs are on their way to storage
    (job / "state.json").write_text('{"state": "SUCC')
    assert store.superfluous(newer[0]) == []
    for last in TERMINAL:
        (job / "state.json").write_text(json.dumps({"state": last}))
        assert store.superfluous(newer[0]) == [WHOLE]


def test_what_another_launch_of_this_head_is_about_to_use_is_not_pruned(store: Store) -> None:
    Path(store.path(WHOLE) + ".nodes").write_text("{}")
    os.utime(store.path(WHOLE) + ".manifest", (1, 1))
    for number in range(4):
        Path(store.path(f"{number:016}")).mkdir()
        Path(store.path(f"{number:016}") + ".manifest").write_text("[]")
    with os.fdopen(hold(store.path(WHOLE))):
        assert store.superfluous(f"{3:016}") == []
        store.prune([WHOLE], "head", [])
        assert store.has(WHOLE)


def test_an_image_that_is_pruned_leaves_docker_too(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda argv, **_: os.spawnvp(os.P_WAIT, argv[0], argv))
    (tmp_path / "bin/docker").write_text(DOCKER)
    (tmp_path / "bin/docker").chmod(0o755)
    store.prune([WHOLE], "head", [])
    assert there(store) == {HALF}
    assert (tmp_path / "calls").read_text() == f"image rm ranklift/{WHOLE}\n"


SPOILT = {
    **NO_FILES,
    **NO_JSON,
    "list": text(b"[1]"),
    "title": text(b'{"title": 7}'),
    "torn": text(b'{"ti'),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("suffix", [".made", ".manifest"])
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_one_that_a_job_spoilt_is_listed_as_damaged_beside_the_rest_and_can_be_removed(
    store: Store, suffix: str, spoil: Callable[[Path], object]
) -> None:
    other = "fedcba9876543210"
    Path(store.path(other)).mkdir()
    Path(store.path(other) + ".manifest").write_text("[]")
    Path(store.path(other) + ".made").write_text('{"title": "numpy"}')
    record = Path(store.path(WHOLE) + suffix)
    record.unlink(missing_ok=True)
    spoil(record)
    held = held_on({"n0": list_environments()})
    assert {(one.id, one.title, one.damaged) for one in held} == {(WHOLE, "", ("n0",)), (other, "numpy", ())}
    assert remove_environments([WHOLE], cache=False)["kept"] == {}
    assert [one.id for one in held_on({"n0": list_environments()})] == [other]
    assert not os.path.lexists(record)
