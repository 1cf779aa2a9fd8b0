"""What jobs changed of stored code and data: no later job starts with it, whatever its size and times say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.remote.node.prepare import Unfit
from launch.remote.node.snapshot_check import check
from tests.launch.cluster import ORDINARY
from tests.launch.remote.node.working_folder import left, make, no_rest, seen
from tests.launch.sealed import manifest_of


def rewritten(path: Path, before: bytes, after: bytes) -> None:
    """Write as many other bytes, and set times and mode back."""
    was = path.stat()
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(before, after))
    path.chmod(was.st_mode & 0o777)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns, now.st_mode) == (was.st_size, was.st_mtime_ns, was.st_mode)


def rewritten_code(code: Path) -> None:
    rewritten(code / "train.py", b"hello", b"jello")


def one_byte_of_a_large_file(code: Path) -> None:
    path = code / "pkg/deep/data.bin"
    with path.open("r+b") as file:
        file.seek(150_000)
        byte = file.read(1)[0]
        file.seek(150_000)
        file.write(bytes([byte ^ 1]))


def made_large_and_sparse(code: Path) -> None:
    os.truncate(code / "train.py", 2 << 40)


def executable(code: Path) -> None:
    (code / "train.py").chmod(0o755)


def a_link_in_its_place(code: Path) -> None:
    (code / "train.py").rename(code.parent / "elsewhere.py")
    (code / "train.py").symlink_to(code.parent / "elsewhere.py")


def a_pipe_in_its_place(code: Path) -> None:
    (code / "train.py").unlink()
    os.mkfifo(code / "train.py")


def another_target(code: Path) -> None:
    (code / "link").unlink()
    (code / "link").symlink_to("/etc/passwd")


def removed(code: Path) -> None:
    (code / "train.py").unlink()


def folder_removed(code: Path) -> None:
    (code / "pkg").rename(code.parent / "pkg")


def a_folder_in_its_place(code: Path) -> None:
    (code / "train.py").unlink()
    (code / "train.py").mkdir()


def as_its_owner(code: Path, call: str) -> str:
    """What a user who may not read everything is told by a call of this module or of work_dir."""
    script = f"""
import sys
from launch.remote.node import snapshot_check, work_dir
from launch.remote.node.prepare import Unfit
try:
    {call}
except Unfit as error:
    print(error)
"""
    argv = [*ORDINARY, sys.executable, "-c", script, str(code), str(code.parent / "t-1")]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


CHANGES = pytest.mark.parametrize(
    ("change", "path"),
    [
        (rewritten_code, "train.py"),
        (one_byte_of_a_large_file, "pkg/deep/data.bin"),
        (made_large_and_sparse, "train.py"),
        (executable, "train.py"),
        (a_link_in_its_place, "train.py"),
        (a_pipe_in_its_place, "train.py"),
        (another_target, "link"),
        (removed, "train.py"),
        (folder_removed, "pkg"),
        (a_folder_in_its_place, "train.py"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)


def problem(code: Path, path: str) -> str:
    return f"a job changed {path} of the pushed {code.name} on this node: launch again, which pushes it again"


@CHANGES
@pytest.mark.timeout(30)
def test_a_job_gets_no_changed_code(code: Path, job: Path, change: Callable[[Path], None], path: str) -> None:
    change(code)
    with pytest.raises(Unfit) as refused:
        make(job, code)
    assert refused.value.reasons == [problem(code, path)]
    assert left(job) == []


@CHANGES
@pytest.mark.timeout(30)
def test_a_job_gets_no_changed_data(code: Path, change: Callable[[Path], None], path: str) -> None:
    check(str(code), no_rest)
    change(code)
    with pytest.raises(Unfit) as refused:
        check(str(code), no_rest)
    assert refused.value.reasons == [problem(code, path)]


@pytest.mark.parametrize("path", ["train.py", "pkg"])
@pytest.mark.parametrize(
    "call",
    [
        "work_dir.make(sys.argv[2], sys.argv[1], lambda _: None)",
        "snapshot_check.check(sys.argv[1], lambda _: None)",
    ],
    ids=["code", "data"],
)
def test_what_cannot_be_read_any_more_counts_as_changed(code: Path, job: Path, path: str, call: str) -> None:
    assert job.exists()
    (code / path).chmod(0)
    assert as_its_owner(code, call) == problem(code, path)
    (code / path).chmod(0o755)


def test_a_manifest_that_was_changed_with_the_file_does_not_count(code: Path, job: Path) -> None:
    rewritten_code(code)
    Path(f"{code}.manifest").write_bytes(manifest_of(code))
    with pytest.raises(Unfit) as refused:
        make(job, code)
    assert refused.value.reasons == [problem(code, "the manifest")]


def test_what_was_added_to_code_is_not_copied(code: Path, job: Path) -> None:
    before = seen(code)
    (code / "sitecustomize.py").write_text("raise SystemExit")
    (code / "more").mkdir()
    (code / "more/x").touch()
    os.mkfifo(code / "pipe")
    assert seen(make(job, code)).keys() == before.keys()


@pytest.mark.parametrize("name", ["more.csv", "pkg/__init__.py", "new/folder"])
def test_what_was_added_to_data_is_named(code: Path, name: str) -> None:
    (code / name).parent.mkdir(exist_ok=True)
    (code / name).touch()
    with pytest.raises(Unfit, match=f"a job changed {name.partition('/folder')[0]} of the pushed"):
        check(str(code), no_rest)


def test_data_read_in_place_is_read_only_from_then_on(code: Path) -> None:
    """So that what writes caches beside its data fails at once, and not the next job."""
    check(str(code), no_rest)
    assert all(not path.stat().st_mode & 0o222 for path in [code, *code.rglob("*")] if path.is_dir())


def test_a_changed_snapshot_does_not_count_any_more(code: Path, job: Path) -> None:
    rewritten_code(code)
    with pytest.raises(Unfit):
        make(job, code)
    with pytest.raises(Unfit, match=rf"^the pushed code {code} is not on this node: push again$"):
        make(job, code)
