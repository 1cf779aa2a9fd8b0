"""Data of many files, and of one large one, through storage to rehearsed nodes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.data.staging_nodes import Nodes

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]

STACK, NODES = "rehearsal", 2
FILES, LARGE = 10_000, 4_000_000_000


def test_ten_thousand_small_files(nodes: Nodes, tmp_path: Path) -> None:
    root = tmp_path / "many"
    for folder in range(100):
        (root / f"{folder:02}").mkdir(parents=True)
        for number in range(FILES // 100):
            (root / f"{folder:02}" / f"{number:02}.txt").write_text(f"{folder} {number}")
    nodes.fab("data.put", str(root))
    before = nodes.left_storage()
    staged = nodes.stage("many")
    assert f"data: {FILES} files, " in staged.err or f"data: {FILES:,} files, " in staged.err
    listed = 8_000_000
    assert nodes.left_storage() - before < 100_000 + listed
    found = nodes.held(staged.out.strip())
    expected = {
        f"{folder:02}/{number:02}.txt": hashlib.sha256(f"{folder} {number}".encode()).hexdigest()
        for folder in range(100)
        for number in range(FILES // 100)
    }
    assert all(one == expected for one in found.values())
    assert "held already" in nodes.stage("many").err


def test_one_file_of_four_gigabytes(nodes: Nodes, tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    with file.open("wb") as stream:  # sparse here, yet all of its bytes travel
        for place in range(0, LARGE, LARGE // 8):
            stream.seek(place)
            stream.write(place.to_bytes(8, "big"))
        stream.truncate(LARGE)
    nodes.fab("data.put", str(file), "large.bin")
    with file.open("rb") as stream:
        expected = hashlib.file_digest(stream, "sha256").hexdigest()
    before = nodes.left_storage()
    path = nodes.stage("large.bin", "--file").out.strip()
    assert LARGE <= nodes.left_storage() - before < 1.01 * LARGE
    out = nodes.fab("exec", f"sha256sum {path}; stat -c %s {path}").out
    assert expected in out
    assert out.count(str(LARGE)) == 1, "both nodes print the same, which is shown once"
    nodes.fab("data.prune")
