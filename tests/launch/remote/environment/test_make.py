"""What a head does before it makes an environment."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launch.remote.environment import make, python_env
from launch.remote.environment.build import Failed
from launch.remote.store.store import ENVIRONMENTS, Store
from launch.remote.store.tree_node import Up
from tests.launch.remote.environment.image_requests import request

if TYPE_CHECKING:
    from launch.remote.environment.request import EnvironmentCall


def call() -> EnvironmentCall:
    return {
        **request("", "", kind="python"),
        "ssh": [],
        "fanout": 1,
        "silence": 1.0,
        "credential": "",
        "may_make": True,
    }


def test_a_full_disk_is_freed_of_a_killed_build_of_the_same_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(python_env, "identity", lambda *_: "mine")
    monkeypatch.setattr(make, "_LEAST_FREE", 1 << 80)
    half = Path(Store(kind=ENVIRONMENTS).path(hashlib.sha256(b"mine").hexdigest()[:16]))
    half.mkdir()
    with pytest.raises(Failed, match="is nearly full"):
        make._answer(call(), Up(io.BytesIO()))
    assert not half.exists()


def test_a_tool_that_finds_the_disk_full_gets_the_remedy_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(request: object, folder: str, lock: int, report: object) -> None:
        Path(folder).mkdir()
        raise Failed("installing packages failed", ["error: No space left on device (os error 28)"])

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(python_env, "identity", lambda *_: "mine")
    monkeypatch.setattr(python_env, "make", fill)
    monkeypatch.setattr(make, "_LEAST_FREE", 0)
    with pytest.raises(Failed, match=r"the disk of \S+ is full; .*`fab environment.prune`") as refused:
        make._answer(call(), Up(io.BytesIO()))
    assert refused.value.lines == ["error: No space left on device (os error 28)"]
    assert not list(Path(Store(kind=ENVIRONMENTS).folder).glob("[0-9a-f]*"))


def test_folders_of_packages_stay_while_the_environment_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other launches of this head push other code meanwhile, which prunes the oldest snapshots."""
    kept = []

    def prune(*_: object) -> None:
        kept.append(not any(pushed.discard(name) for name in folders))
        raise Failed("stopped")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(python_env, "identity", lambda *_: "mine")
    monkeypatch.setattr(python_env, "make", prune)
    monkeypatch.setattr(make, "_LEAST_FREE", 0)
    pushed, folders = Store(), ["aa" * 8, "bb" * 8]
    for name in folders:
        Path(pushed.path(name)).mkdir()
        Path(pushed.path(name) + ".manifest").write_text("[]")
    wanted = call()
    wanted["find_links"], wanted["channels"] = folders[:1], folders[1:]
    with pytest.raises(Failed, match="stopped"):
        make._answer(wanted, Up(io.BytesIO()))
    assert kept == [True]
    assert all(pushed.discard(name) for name in folders), "and no longer"
