"""What killed builds and removed images leave on a node goes, and nothing that is in use."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from launch.remote.environment.usage import clear_debris, remove_environments
from launch.remote.store.store import ENVIRONMENTS, Store

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
