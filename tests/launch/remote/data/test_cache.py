"""A node's staged data: room for more, what stays, what goes."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.client.staged_data import merge_listings
from launch.remote.base.files import hold
from launch.remote.data import cache
from launch.remote.data.faults import FetchError
from launch.remote.data.part_files import PartFiles
from launch.remote.data.parts import File
from launch.remote.store.store import Store
from tests.launch.remote.spoilt import NO_FILES, NO_JSON, text

MB = 1_000_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HOME", str(tmp_path))
    return cache.open_cache(disks=[])


def whole(store: Store, name: str, used_hours_ago: float = 24.0, size: int = MB) -> None:
    folder = Path(store.path(name))
    folder.mkdir()
    (folder / "file").write_bytes(b"x")
    cache.write_manifest(store, name, f"https://acme/{name}", 1, size, ["digest"])
    used = time.time() - 3600 * used_hours_ago
    os.utime(store.path(name) + ".manifest", (used, used))


def unfinished_job(store: Store, text: str) -> None:
    job = Path(store.root) / "jobs/train-1"
    job.mkdir(parents=True)
    (job / "job.json").write_text(text)
    (job / "state.json").write_text('{"state": "QUEUED"}')


def make_room(store: Store, *, bound: int = 3 * MB, kept: tuple[str, ...] = ()) -> list[str]:
    return cache.make_room(store, {"new": MB}, "head", kept, bound)


def test_the_least_recently_used_go_first(store: Store) -> None:
    for name, hours in (("a", 2), ("b", 9), ("c", 5)):
        whole(store, name, hours)
    assert make_room(store) == ["b"]
    assert not Path(store.path("b")).exists()
    assert store.has("a")


def test_nothing_goes_while_there_is_room(store: Store) -> None:
    whole(store, "a")
    assert make_room(store) == []


def test_what_was_just_staged_stays(store: Store) -> None:
    for name in "abc":
        whole(store, name, used_hours_ago=0.1)
    with pytest.raises(FetchError, match=r"no room for 1\.0 MB more.*a \(1\.0 MB\), b .*`fab data\.prune`"):
        make_room(store)


def test_what_a_head_relies_on_stays(store: Store) -> None:
    for name in "abc":
        whole(store, name)
    store.owe("a", "another")
    store.owe("b", "head")
    store.owe("c", "head")
    assert make_room(store, kept=("b",)) == ["c"]
    assert Path(store.path("a") + ".of-another").exists()


def test_what_ranks_read_stays(store: Store) -> None:
    for name in "abc":
        whole(store, name)
    held = [os.fdopen(hold(store.path(name))) for name in "ab"]
    assert make_room(store) == ["c"]
    assert cache.remove_data(["a"])["kept"] == {"a": ["a staging, or ranks of another head's job"]}
    for one in held:
        one.close()
    assert cache.remove_data(["a"])["kept"] == {}


def test_data_that_go_cannot_be_held_any_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole(store, "a")
    lock, real = os.open(store.path("a") + ".manifest", os.O_RDONLY), os.unlink

    def unlink(path: str) -> None:
        if path.endswith(".manifest"):
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        real(path)

    monkeypatch.setattr(os, "unlink", unlink)
    assert cache.remove(store, "a")
    os.close(lock)


def test_a_note_of_a_head_that_is_gone_counts_for_a_day(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "is_unknown", lambda head: head == "gone")
    for name in "ab":
        whole(store, name, used_hours_ago=30)
        store.owe(name, "gone" if name == "a" else "another")
    with pytest.raises(FetchError, match="no room"):
        make_room(store, bound=2 * MB)
    before = time.time() - 25 * 3600
    for note in ("a.of-gone", "b.of-another"):
        os.utime(Path(store.folder) / note, (before, before))
    assert make_room(store, bound=2 * MB) == ["a"]
    assert store.has("b")


def test_a_note_of_a_head_that_is_there_counts_for_a_week(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "is_unknown", lambda _: False)
    for name, days in (("a", 8), ("b", 6)):
        whole(store, name, used_hours_ago=24 * days)
        store.owe(name, "another")
        before = time.time() - 24 * 3600 * days
        os.utime(Path(store.folder) / f"{name}.of-another", (before, before))
    assert make_room(store) == []
    assert make_room(store, bound=2 * MB) == ["a"]
    with pytest.raises(FetchError, match="no room"):
        make_room(store, bound=MB)


def test_files_are_on_the_disk_before_the_manifest_counts_them_as_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(cache, "sync_data", lambda _: done.append("sync"))
    monkeypatch.setattr(cache, "write_manifest", lambda *_: done.append("manifest"))
    data = PartFiles(store, "0123456789abcdef", "https://acme/a", [File("a", 3, "1")], is_cut=True)
    data.prepare()
    data.keep(0, "digest")
    data.finish()
    assert done == ["sync", "manifest"]


def test_a_disk_that_cannot_be_synced_is_an_error(store: Store) -> None:
    cache.sync_data(store)
    Path(store.folder).rmdir()
    with pytest.raises(FileNotFoundError):
        cache.sync_data(store)


def test_what_a_job_names_is_not_removed(store: Store) -> None:
    whole(store, "0123456789abcdef")
    unfinished_job(store, json.dumps({"data": [{"id": "0123456789abcdef"}]}))
    assert cache.remove_data(["0123456789abcdef"])["kept"] == {"0123456789abcdef": ["train-1"]}
    (listed,) = cache.list_data()["data"]
    assert (listed["jobs"], listed["is_whole"], listed["bytes"]) == (["train-1"], True, MB)


def test_the_folder_is_on_the_first_disk_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    disk = tmp_path / "resource"
    disk.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(disk))
    store = cache.open_cache(disks=[str(tmp_path / "nvme"), str(disk)])
    place = disk / f"ranklift-data-{os.getuid()}"
    assert Path(store.folder).resolve() == place
    assert place.stat().st_mode & 0o777 == 0o700
    place.rmdir()  # Azure moved the machine: the disk is empty
    assert Path(cache.open_cache(disks=[str(disk)]).folder).resolve() == place
    assert place.is_dir()


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os.path, "ismount", lambda _: True)
    (tmp_path / f"ranklift-data-{os.getuid() + 1}").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        cache.open_cache(disks=[str(tmp_path)])


SPOILT = {
    **NO_FILES,
    **NO_JSON,
    "list": text(b"[1]"),
    "empty": text(b"{}"),
    "other types": text(b'{"url": 7, "files": [], "bytes": "x", "digests": {}}'),
    "negative": text(b'{"url": "", "files": 1, "bytes": -1, "digests": []}'),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
class TestASpoiltManifest:
    """A job can put anything in the place of the manifest of one set of data."""

    @pytest.fixture(autouse=True)
    def spoilt(self, store: Store, spoil: Callable[[Path], object]) -> None:
        for name in ("0a", "0b"):
            whole(store, name)
        manifest = Path(store.path("0a") + ".manifest")
        manifest.unlink()
        spoil(manifest)

    def test_is_listed_as_damaged_beside_the_rest_and_can_be_removed(self, store: Store) -> None:
        held = merge_listings({"n0": cache.list_data()})
        assert {(one.id, one.nodes, one.damaged) for one in held} == {
            ("0a", (), ("n0",)),
            ("0b", ("n0",), ()),
        }
        assert cache.remove_data(["0a"]) == {"kept": {}}
        assert [one.id for one in merge_listings({"n0": cache.list_data()})] == ["0b"]

    def test_keeps_no_room_from_other_data(self, store: Store) -> None:
        assert make_room(store, bound=2 * MB) == ["0b"]
        assert store.has("0b") is False

    def test_is_replaced_by_the_next_staging(self, store: Store) -> None:
        found = PartFiles(store, "0a", "https://acme/0a", [File("file", 1, "")], is_cut=True)
        found.find()
        assert not found.is_whole
        cache.write_manifest(store, "0a", "https://acme/0a", 1, 1, ["digest"])
        assert store.has("0a")
