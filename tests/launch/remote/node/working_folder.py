"""Snapshots and jobs' folders, for tests of working folders."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from launch.remote.node import work_dir
from tests.launch.sealed import seal

OLD_NS = 1_600_000_000_123_456_789


def no_rest(_: int) -> None:
    return None


def snapshot_in(folder: Path) -> Path:
    """Make a snapshot with everything that one may hold."""
    root = folder / "snapshot"
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o711)
    (root / "train.py").write_text("print('hello')\n")
    (root / "pkg" / "tool.sh").write_text("#!/bin/sh\n")
    (root / "pkg" / "tool.sh").chmod(0o755)
    (root / "pkg" / "deep" / "data.bin").write_bytes(os.urandom(200_000))
    (root / "pkg" / "nothing").touch(0o640)
    (root / "link").symlink_to("pkg/tool.sh")
    (root / "dangling").symlink_to("/no/such/file")
    for path in sorted(root.rglob("*"), reverse=True):
        os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)
    return seal(root)


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def make(job: Path, code: Path | str) -> Path:
    os.close(work_dir.make(str(job), str(code), no_rest))
    return job / "work"


def ranks_ran(job: Path) -> None:
    (job / "exits.jsonl").touch()


def seen(root: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time and content of all that is below a folder; a job's ``outputs`` aside."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path != root / "outputs":
            result = path.lstat()
            text = str(path.readlink()) if path.is_symlink() else ""
            if path.is_file() and not path.is_symlink():
                text = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(root))] = (result.st_mode, result.st_mtime_ns, text)
    return found


def left(job: Path) -> list[str]:
    """The job's folder but for its records."""
    paths = (str(path.relative_to(job)) for path in job.rglob("*"))
    return sorted(path for path in paths if path not in ("outputs", "exits.jsonl"))
