"""Data staged once, into a folder that all nodes share."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base.files import hold
from launch.remote.data import cache
from launch.remote.data.faults import FetchError
from tests.launch.remote.data.staging_cluster import (
    Cluster,
    Make,
    MiB,
    contents,
    fill,
    processes_of,
    stored,
    until_bytes,
)
from tests.launch.remote.data.storage_server import Storage
from tests.launch.standin import until


def is_there(nodes: Cluster, storage: Storage, answer: Any) -> bool:
    """The one copy is whole, and no node has one of its own."""
    assert answer["t"] == "staged", answer
    (data,) = answer["data"]
    assert data["path"] == str(nodes.shared_data(data["id"]))
    assert not any(nodes.data(node, data["id"]).exists() for node in range(len(nodes.nodes)))
    return contents(nodes.shared_data(data["id"])) == stored(storage, "data/set/")


def test_one_copy_is_made_by_the_head_for_all_nodes(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(3)
    answer = nodes.stage(nodes.source("data/set"), shared=str(nodes.shared))
    assert is_there(nodes, storage, answer)
    assert storage.sent == storage.total() == answer["from_storage"]
    assert not any((nodes.folder / "asked").glob("*"))


def test_another_head_finds_what_one_has_staged(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(3)
    first = nodes.stage(nodes.source("data/set"), shared=str(nodes.shared))
    again = nodes.stage(nodes.source("data/set"), nodes=[2, 1], shared=str(nodes.shared))
    assert again["data"] == first["data"]
    assert (storage.sent, again["from_storage"]) == (storage.total(), 0)
    notes = {path.suffix for path in nodes.shared_data().glob(f"{first['data'][0]['id']}.of-*")}
    assert notes == {".of-node000000", ".of-node000002"}


def test_two_heads_that_stage_the_same_at_once_wait_for_one_staging(storage: Storage, cluster: Make) -> None:
    fill(storage, 16)
    storage.rate = 8 * MiB
    nodes = cluster(2)
    first = nodes.start(nodes.source("data/set"), nodes=[0], shared=str(nodes.shared))
    until_bytes(storage, 2 * MiB)
    second = nodes.start(nodes.source("data/set"), nodes=[1], shared=str(nodes.shared))
    assert second.end()["from_storage"] == 0
    assert "waiting for another launch that stages" in str(second.answers)
    assert is_there(nodes, storage, first.end())
    assert storage.sent == storage.total()


def test_another_head_goes_on_with_what_a_killed_one_has_left(storage: Storage, cluster: Make) -> None:
    fill(storage, 48)
    storage.rate = 16 * MiB
    nodes = cluster(2)
    staging = nodes.start(nodes.source("data/set"), nodes=[0], shared=str(nodes.shared))
    until_bytes(storage, 32 * MiB)
    staging.kill()
    for process in processes_of(nodes, 0):
        os.kill(process, signal.SIGKILL)
    until(lambda: not processes_of(nodes, 0))
    storage.rate = None
    before = storage.sent
    assert is_there(
        nodes, storage, nodes.stage(nodes.source("data/set"), nodes=[1], shared=str(nodes.shared))
    )
    assert storage.sent - before < 40 * MiB


def test_a_folder_that_is_not_mounted_is_refused(storage: Storage, cluster: Make, tmp_path: Path) -> None:
    fill(storage, 1)
    nodes = cluster(2)
    answer = nodes.stage(nodes.source("data/set"), shared=str(tmp_path))
    assert answer["t"] == "failed"
    assert f"{tmp_path} is not mounted on this node: `fab status` shows" in answer["reason"]
    assert not list(tmp_path.glob("ranklift-*"))
    assert storage.sent == 0


def test_data_are_listed_beside_the_nodes_own_and_removed_alone(
    storage: Storage, cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage, 1)
    nodes = cluster(1)
    shared = str(nodes.shared)
    monkeypatch.setenv("HOME", str(nodes.home(0)))
    monkeypatch.setattr(cache, "_is_mounted", lambda folder: Path(folder).is_dir())
    (data,) = nodes.stage(nodes.source("data/set"))["data"]
    nodes.stage(nodes.source("data/set"), shared=shared)
    listed = {one["shared"]: one for one in cache.list_data(shared)["data"]}
    assert {one["id"] for one in listed.values()} == {data["id"]}
    assert (listed[True]["bytes"], listed[True]["is_whole"]) == (MiB, True)
    assert [one["shared"] for one in cache.list_data("/no/such")["data"]] == [False]
    (nodes.folder / "unused").mkdir()
    assert [one["shared"] for one in cache.list_data(str(nodes.folder / "unused"))["data"]] == [False]
    assert not list((nodes.folder / "unused").iterdir())
    with os.fdopen(hold(str(nodes.shared_data(data["id"])))):
        assert data["id"] in cache.remove_data([data["id"]], shared)["kept"]
    assert cache.remove_data([data["id"]], shared) == {"kept": {}}
    assert not nodes.shared_data(data["id"]).exists()
    assert nodes.data(0, data["id"]).exists()
    with pytest.raises(FetchError, match="is not mounted"):
        cache.remove_data([data["id"]], "/no/such")


def test_the_nodes_bound_is_not_that_of_the_shared_folder(storage: Storage, cluster: Make) -> None:
    fill(storage, 4)
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("data/set"), shared=str(nodes.shared), bound=MiB)
    assert is_there(nodes, storage, answer)


def test_a_rate_bounds_what_leaves_storage(storage: Storage, cluster: Make) -> None:
    fill(storage, 12)
    nodes = cluster(2)
    started = time.monotonic()
    assert nodes.stage(nodes.source("data/set"), rate=4 * MiB)["t"] == "staged"
    assert 1.5 < time.monotonic() - started < 20
