"""Datasets as files and parts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.remote.data.part_files import PartFiles
from launch.remote.data.parts import File, check_names, cut, dataset_id, part_size
from launch.remote.store.store import Store

FILES = st.lists(st.integers(0, 5 << 20), max_size=40).map(
    lambda sizes: [File(str(number), size, "etag") for number, size in enumerate(sizes)]
)


@given(FILES, st.booleans())
def test_parts_hold_every_byte_once(files: list[File], is_cut: bool) -> None:
    parts = cut(files, is_cut=is_cut)
    held = sorted(extent for part in parts for extent in part.extents)
    ends: dict[int, int] = {}
    for file, start, size in held:
        assert start == ends.get(file, 0)
        assert size > 0
        ends[file] = start + size
    assert ends == {number: file.size for number, file in enumerate(files) if file.size}
    assert all(part.size == sum(extent.size for extent in part.extents) for part in parts)
    if is_cut:
        assert all(part.size <= part_size(sum(file.size for file in files)) for part in parts)


def test_small_files_share_parts() -> None:
    parts = cut([File(f"{number}.txt", 100, "e") for number in range(10_000)])
    assert len(parts) == 40
    assert all(len(part.extents) <= 256 for part in parts)


@pytest.mark.parametrize("size", [10**13, 10**15, 2**63 - 1])
def test_a_file_of_any_size_has_a_bounded_number_of_parts(size: int) -> None:
    parts = cut([File("claimed", size, "e")])
    assert sum(part.size for part in parts) == size
    assert len(parts) <= 1 << 18


def test_a_file_that_cannot_be_cut_is_one_part() -> None:
    (part,) = cut([File("model.bin", 5 << 30, "e")], is_cut=False)
    assert part.extents == ((0, 0, 5 << 30),)


def test_the_id_is_the_address_and_the_content() -> None:
    files = [File("a", 1, "one"), File("b", 2, "two")]
    name = dataset_id("https://h/c/p", files)
    assert name == dataset_id("https://h/c/p", files[::-1])
    assert name != dataset_id("https://h/c/q", files)
    assert name != dataset_id("https://h/c/p", [File("a", 1, "other"), files[1]])
    assert len(name) == 16


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        (["../evil"], "is not a name"),
        (["a/../../evil"], "is not a name"),
        (["/etc/passwd"], "is not a name"),
        (["a//b"], "is not a name"),
        (["a/./b"], "is not a name"),
        (["a\0b"], "is not a name"),
        (["x" * 256], "longer than a file's name"),
        (["y/" * 1600 + "z"], "longer than a file's name"),
        (["a", "a"], "listed twice"),
        (["a", "a/b"], "'a' is a file and a folder"),
    ],
)
def test_names_that_a_folder_cannot_have_are_refused(paths: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_names("https://h/c", [File(path, 1, "e") for path in paths])


def test_blanks_and_other_letters_are_names() -> None:
    check_names("https://h/c", [File("mit Leerzeichen/ä b?#%.txt", 1, "e"), File("..a", 1, "e")])


def test_a_line_of_a_journal_that_a_job_has_written_spoils_no_staging(tmp_path: Path) -> None:
    (tmp_path / "x.parts").write_text(f"0 a\n{'9' * 5000} b\nnone c\n1 d")
    store = cast("Store", SimpleNamespace(path=lambda name: str(tmp_path / name)))
    assert list(PartFiles(store, "x", "", [], is_cut=False)._journal()) == [(0, "a"), (1, "d")]
