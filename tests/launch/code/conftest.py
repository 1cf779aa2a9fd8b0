"""A cluster, and code with names, modes and links of all kinds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.launch.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "cluster", 7)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    (root / "a folder").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "empty").touch()
    (root / "a folder" / "größe\nzwei").write_bytes(os.urandom(300_000))
    (root / "a folder" / "twin").write_text("print('hello')\n")
    (root / os.fsdecode(b"not-utf8-\xff")).write_text("x")
    (root / "data").symlink_to("/mnt/data")
    return root
