"""What moves between this machine and storage, decided before anything does."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from launch.data.data_spec import BlobAddress
from launch.data.local_files import Digests, list_files
from launch.data.transfer import StoredBlob, blocks_of, by_folder, destinations, names_below
from launch.errors import InputError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ADDRESS = BlobAddress("https://acme.blob.core.windows.net", "data", "set")


def blob(name: str, size: int = 1) -> StoredBlob:
    return StoredBlob(name, size, None, "e", NOW)


def test_a_file_has_at_most_as_many_blocks_as_a_blob_may() -> None:
    assert len(blocks_of(4 << 40)) <= 50_000
    assert sum(block.size for block in blocks_of((4 << 40) + 1)) == (4 << 40) + 1
    assert blocks_of(0) == []


def test_a_folder_is_listed_by_name_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ä ö").write_text("x")
    (tmp_path / "a").symlink_to(tmp_path / "b" / "ä ö")
    assert [(one.name, one.size) for one in list_files(tmp_path)] == [("a", 1), ("b/ä ö", 1)]


def test_what_cannot_be_uploaded_is_named_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(InputError, match="is a link to a folder that contains it"):
        list_files(tmp_path)
    (tmp_path / "loop").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe': is neither a file nor a folder"):
        list_files(tmp_path)
    (tmp_path / "pipe").unlink()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="gone': cannot be read: No such file"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("a.", "a dot at a name's end"), ("a\\b", "has a backslash"), ("x" * 250, "over 1024")],
)
def test_names_that_blobs_cannot_have_are_refused(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / name).write_text("x")
    address = BlobAddress(ADDRESS.account_url, "data", "/".join(["y" * 200] * 4))
    with pytest.raises(InputError, match=problem):
        names_below(address, list_files(tmp_path))


def test_an_md5_is_kept_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("one")
    os.utime(path, (1, 1))
    first = Digests(tmp_path / "cache")
    before = first.of(list_files(path)[0])
    first.save()
    path.write_text("two")
    os.utime(path, (2, 2))
    second = Digests(tmp_path / "cache")
    assert second.of(list_files(path)[0]) != before
    (tmp_path / "cache").write_text("{torn")
    assert Digests(tmp_path / "cache").of(list_files(path)[0]) != before


def test_an_md5_of_a_file_that_changed_just_now_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("one")
    os.utime(path, (time.time(),) * 2)
    digests = Digests(tmp_path / "cache")
    digests.of(list_files(path)[0])
    digests.save()
    assert (tmp_path / "cache").read_text() == "{}"


def test_blobs_go_where_they_were_below_their_folder(tmp_path: Path) -> None:
    found = destinations(ADDRESS, [blob("set/a b/ä"), blob("set/c")], tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a b/ä", "c"]


@pytest.mark.parametrize("name", ["set/../x", "set/a//b", "set/./a"])
def test_no_blob_leaves_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="has a name that no file can have"):
        destinations(ADDRESS, [blob(name)], tmp_path)


def test_a_blob_that_is_a_folder_too_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'set/a': is a blob and a folder of blobs"):
        destinations(ADDRESS, [blob("set/a"), blob("set/a/b")], tmp_path)


def test_a_listing_sums_up_folders() -> None:
    rows = by_folder(ADDRESS, [blob("set/a/b", 3), blob("set/a/c/d", 4), blob("set/e", 5)])
    assert [(row.name, row.files, row.bytes) for row in rows] == [("a/", 2, 7), ("e", 1, 5)]
    assert [row.name for row in by_folder(ADDRESS, [blob("set")])] == ["set"]


@pytest.mark.parametrize(
    "folder", [".git", "a/.GIT", ".g\u200cit", "git~1", ".git.", ".ranklift/dev", ".Ranklift"]
)
def test_no_blob_comes_into_a_folder_whose_settings_are_obeyed(tmp_path: Path, folder: str) -> None:
    with pytest.raises(InputError, match=r"blob = 'set/.*/x': would be in a folder of settings"):
        destinations(ADDRESS, [blob("set/model"), blob(f"set/{folder}/x")], tmp_path)


@pytest.mark.parametrize(
    "names", [("HEAD", "objects/x", "refs/x"), ("HEAD", "commondir"), ("Head", "CommonDir")]
)
def test_no_blobs_make_a_repository_of_git_together(tmp_path: Path, names: tuple[str, ...]) -> None:
    blobs = [blob(f"set/a/{name}") for name in (*names, "config", "model")]
    with pytest.raises(
        InputError, match=f"would be part of a git repository.*as would {len(names)} others"
    ) as caught:
        destinations(ADDRESS, blobs, tmp_path)
    assert all(f"set/a/{name}" in str(caught.value) for name in (*names, "config"))
    assert "model" not in str(caught.value)


def test_nor_with_what_is_there(tmp_path: Path) -> None:
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / name).mkdir()
    for name in ("config", "hooks/pre-commit"):
        with pytest.raises(InputError, match="would be part of a git repository"):
            destinations(ADDRESS, [blob(f"set/{name}")], tmp_path)
    assert destinations(ADDRESS, [blob("set/b/config"), blob("set/model")], tmp_path)


def test_names_of_git_in_folders_of_other_data_are_names() -> None:
    names = ["a/HEAD", "b/config", "b/objects/x", "c/refs/x", "a/commondirs", ".gitignore", "digits.git/x"]
    assert len(destinations(ADDRESS, [blob(f"set/{name}") for name in names], Path("no"))) == len(names)


def test_no_blob_comes_through_a_link_below_the_target(tmp_path: Path) -> None:
    (tmp_path / "disk" / "a").mkdir(parents=True)
    (tmp_path / "target").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "a" / "link").symlink_to(tmp_path)
    blobs = [blob("set/a/b/c"), blob("set/a/link/b/c")]
    with pytest.raises(InputError, match=r"'set/a/link/b/c': has no place in .*: a/link is not a folder"):
        destinations(ADDRESS, blobs, tmp_path / "target")
    assert destinations(ADDRESS, blobs[:1], tmp_path / "target")
