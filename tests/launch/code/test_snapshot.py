"""A snapshot's id follows the code and nothing else; planning an unchanged tree reads no contents."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.code.snapshot import plan_data, plan_snapshot
from launch.errors import InputError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    (root / "pkg").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "pkg" / "ünïcode name").write_text("twin")
    (root / "pkg" / "twin").write_text("twin")
    (root / "empty").touch()
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    return root


def settle() -> None:
    time.sleep(0.15)


def test_equal_trees_have_equal_ids_wherever_and_whenever(tree: Path, tmp_path: Path) -> None:
    first = plan_snapshot(tree)
    moved = tree.rename(tmp_path / "elsewhere")
    os.utime(moved / "train.py", (1, 1))
    (moved / "hollow").mkdir()
    assert plan_snapshot(moved).id == first.id
    assert len(first.id) == 16


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "train.py").write_text("print('jello')\n"),
        lambda root: (root / "run.sh").chmod(0o644),
        lambda root: (root / "empty").rename(root / "void"),
        lambda root: (root / "link").symlink_to("train.py"),
    ],
    ids=["content", "executable", "name", "link"],
)
def test_every_change_makes_another_id(tree: Path, change) -> None:  # type: ignore[no-untyped-def]
    before = plan_snapshot(tree).id
    change(tree)
    assert plan_snapshot(tree).id != before


def test_equal_contents_are_one_blob_and_empty_files_none(tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    assert [blob.path for blob in snapshot.blobs()] == ["pkg/twin", "run.sh", "train.py"]
    assert snapshot.size == len("print('hello')\n") + 2 * len("twin") + len("#!/bin/sh\n")
    assert [entry.path for entry in snapshot.largest(1)] == ["train.py"]


def test_links_stay_links_even_out_of_the_tree(tree: Path) -> None:
    (tree / "data").symlink_to("/mnt/data")
    (tree / "up").symlink_to("../..")
    targets = {entry.path: entry.target for entry in plan_snapshot(tree).entries if entry.target is not None}
    assert targets == {"data": "/mnt/data", "up": "../.."}


def test_names_that_are_not_utf8_are_kept(tree: Path) -> None:
    (tree / os.fsdecode(b"caf\xe9")).touch()
    names = [os.fsencode(entry.path) for entry in plan_snapshot(tree).entries]
    assert b"caf\xe9" in names
    assert names == sorted(names)


def test_unchanged_files_are_not_read_again(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "hashes.json"
    settle()
    plan_snapshot(tree, cache)
    known = json.loads(cache.read_text())
    marked = "0" * 64
    for status in known["files"].values():
        status[-2] = marked
    cache.write_text(json.dumps(known))
    assert {entry.sha256 for entry in plan_snapshot(tree, cache).entries} == {marked}
    (tree / "train.py").write_text("print('jello')\n")
    changed = {entry.path: entry.sha256 for entry in plan_snapshot(tree, cache).entries}
    assert changed.pop("train.py") != marked
    assert set(changed.values()) == {marked}


def test_a_file_that_has_only_just_changed_is_read_again(tree: Path, tmp_path: Path) -> None:
    """Two changes within one tick of the clock leave the same times behind."""
    cache = tmp_path / "hashes.json"
    settle()
    (tree / "train.py").write_text("print('jello')\n")
    plan_snapshot(tree, cache)
    assert "train.py" not in json.loads(cache.read_text())["files"]


def test_a_broken_cache_is_only_slow(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hashes.json"
    for text in ("", "[]", '{"root": 1}', "\0"):
        cache.write_text(text)
        assert plan_snapshot(tree, cache).id == plan_snapshot(tree).id


def test_a_cache_that_cannot_be_written_is_only_slow(tree: Path, tmp_path: Path) -> None:
    settle()
    (tmp_path / "no folder").touch()
    assert plan_snapshot(tree, tmp_path / "no folder/hashes.json").id == plan_snapshot(tree).id


def test_a_cache_of_another_tree_is_not_believed(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hashes.json"
    settle()
    plan_snapshot(tree, cache)
    cache.write_text(cache.read_text().replace(str(tree), "/elsewhere"))
    assert plan_snapshot(tree, cache).id == plan_snapshot(tree).id


def test_nothing_to_push_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no files to push;"):
        plan_snapshot(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        plan_snapshot(tmp_path / "absent")


def test_an_unreadable_file_is_named(tree: Path) -> None:
    (tree / "train.py").chmod(0)
    plan = "import sys; from pathlib import Path; from launch.code.snapshot import plan_snapshot as plan"
    command = [sys.executable, "-c", f"{plan}; plan(Path(sys.argv[1]))", str(tree)]
    if os.geteuid() == 0:  # who could read it all the same
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert re.search(r"InputError: .*train\.py.*cannot be read", ran.stderr)


def test_data_is_whole_whatever_ignore_files_say(tree: Path) -> None:
    (tree / ".gitignore").write_text("*.bin\n")
    (tree / ".ranklift-ignore").write_text("sub/\n")
    (tree / "sub").mkdir()
    (tree / "sub" / "a.bin").write_text("1")
    (tree / ".git").mkdir()
    (tree / ".git" / "config").write_text("2")
    paths = {entry.path for entry in plan_data(tree).entries}
    assert {".gitignore", ".ranklift-ignore", "sub/a.bin", ".git/config"} <= paths


def test_a_file_named_outputs_is_refused_and_a_link_is_reported(tree: Path) -> None:
    (tree / "outputs").symlink_to("/mnt/big")
    assert (
        plan_snapshot(tree).notice == "the link ./outputs to /mnt/big is a folder of the job's own on nodes"
    )
    (tree / "outputs").unlink()
    (tree / "outputs").touch()
    with pytest.raises(InputError, match=r"source = '.*/outputs': is a file, .*; rename it, or name it in"):
        plan_snapshot(tree)
    (tree / ".ranklift-ignore").write_text("/outputs\n")
    plan_snapshot(tree)


def test_links_in_data_are_followed(tree: Path) -> None:
    blobs = tree / "blobs"
    (blobs / "more").mkdir(parents=True)
    (blobs / "one").write_text("content")
    (blobs / "more" / "two").write_text("2")
    (tree / "file").symlink_to(blobs / "one")
    (tree / "folder").symlink_to(blobs / "more")
    found = {entry.path: entry for entry in plan_data(tree).entries}
    assert (found["file"].target, found["file"].size) == (None, 7)
    assert found["folder/two"].size == 1


def test_links_in_data_that_lead_nowhere_or_in_circles_are_named(tree: Path) -> None:
    (tree / "gone").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"'gone': cannot be read \(No such file or directory\)"):
        plan_data(tree)
    (tree / "gone").unlink()
    (tree / "sub").mkdir()
    (tree / "sub" / "up").symlink_to("..")
    with pytest.raises(InputError, match="'sub/up': a link that leads back to its own folder"):
        plan_data(tree)


def test_a_file_of_data_is_a_snapshot_under_its_own_name(tmp_path: Path) -> None:
    real = tmp_path / "real.csv"
    real.write_text("a")
    (tmp_path / "table.csv").symlink_to(real)
    snapshot = plan_data(tmp_path / "table.csv", tmp_path / "cache.json")
    assert [(entry.path, entry.size, entry.target) for entry in snapshot.entries] == [("table.csv", 1, None)]
    assert snapshot == plan_data(tmp_path / "table.csv", tmp_path / "cache.json")


def test_no_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no files"):
        plan_data(tmp_path)
    with pytest.raises(InputError, match=r"'nix': cannot be read"):
        plan_data(tmp_path / "nix")


@pytest.mark.parametrize(
    "kept", ["null", "[]", '{"root": "HERE", "files": null}', '{"root": "HERE", "files": {"a": 1}}']
)
def test_a_cache_of_another_shape_is_no_hindrance(tmp_path: Path, kept: str) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a").write_text("1")
    cache = tmp_path / "hashes.json"
    cache.write_text(kept.replace("HERE", str(tmp_path / "code")))
    assert plan_snapshot(tmp_path / "code", cache).id == plan_snapshot(tmp_path / "code").id
