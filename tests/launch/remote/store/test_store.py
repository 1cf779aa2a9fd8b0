"""Which pushed code a node keeps for heads that may be gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.remote.store.store import Store

NAMES = ("a" * 16, "b" * 16)
DAY_S = 86400.0
ROOT = Path(__file__).parents[4]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A node that holds two snapshots for head ``old``, and removes what goes while it is waited for."""
    monkeypatch.setattr(subprocess, "Popen", _run)
    store = Store(str(tmp_path))
    for name in NAMES:
        Path(store.path(name)).mkdir()
        Path(store.path(name) + ".manifest").write_text("[]")
        store.owe(name, "old")
    return store


def _run(argv: list[str], **_: object) -> None:
    done = os.spawnvp(os.P_WAIT, argv[0], argv)
    assert done == 0


BUILD = """
import os, sys
from launch.remote.store.assemble import Builder
from launch.remote.store.manifest import Manifest
from launch.remote.store.store import Store
Builder(Store(sys.argv[1]), Manifest(b"[]"), False, False)
print("begun", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_push_began_goes_with_the_next_one_and_what_another_makes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(child: subprocess.Popen[bytes]) -> set[Path]:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        return set(tmp_path.glob("snapshots/.new-*"))

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT}
    argv = [sys.executable, "-c", BUILD, str(tmp_path)]
    with subprocess.Popen(argv, **pipes) as killed:  # type: ignore[call-overload]
        left = begun(killed)
        killed.kill()
    with subprocess.Popen(argv, **pipes) as other:  # type: ignore[call-overload]
        made = begun(other) - left
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", _run)
            Store(str(tmp_path)).prune([], "head", [])
        assert len(left) == len(made) == 1
        assert set(tmp_path.glob("snapshots/.new-*")) == made


def age(store: Store, name: str, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(store.path(name) + ".of-old", (then, then))


def names_resolve(monkeypatch: pytest.MonkeyPatch, error: OSError | None) -> list[str]:
    requests: list[str] = []

    def getaddrinfo(name: str, _: object) -> list[object]:
        requests.append(name)
        if error is not None:
            raise error
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return requests


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def test_what_a_head_that_is_gone_spread_goes_after_a_day(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = names_resolve(monkeypatch, UNKNOWN)
    age(store, NAMES[0], 1.1)
    age(store, NAMES[1], 0.9)
    store.prune([], "new", [])
    assert store.known() == [NAMES[1]]
    assert not Path(store.path(NAMES[0]) + ".of-old").exists()
    assert requests == ["old"]


@pytest.mark.parametrize(
    "error",
    [None, socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), OSError("no descriptor is left")],
    ids=["alive", "not known now", "not asked"],
)
def test_what_one_spread_that_may_live_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    names_resolve(monkeypatch, error)
    for name in NAMES:
        age(store, name, 400)
    store.prune([], "new", [])
    assert sorted(store.known()) == list(NAMES)


def test_another_head_that_needs_it_keeps_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names_resolve(monkeypatch, UNKNOWN)
    age(store, NAMES[0], 2)
    store.owe(NAMES[0], "new")
    store.prune([], "new", [NAMES[0]])
    assert NAMES[0] in store.known()


def test_a_head_made_anew_under_its_name_keeps_what_it_counts_on(store: Store) -> None:
    for name in NAMES:
        age(store, name, 2)
    store.prune([], "old", [NAMES[1]])
    assert store.known() == [NAMES[1]]


def test_a_push_under_way_by_the_same_head_loses_nothing(store: Store) -> None:
    store.prune([], "old", [])
    assert sorted(store.known()) == list(NAMES)


def test_another_process_that_removes_trash_meanwhile_is_not_in_the_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def rename_after_removal(source: str, target: str) -> None:
        for path in store.trash():
            _run(["rm", "-rf", path])
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_after_removal)
    assert store.discard(NAMES[0])
    left = [path.name for path in Path(store.folder).glob(f"{NAMES[0]}*")]
    assert left == [f"{NAMES[0]}.of-old"]
