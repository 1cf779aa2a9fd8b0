"""What a job left in its working folder on a node: what it wrote and changed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.remote.base.payloads import LeftFiles
from launch.remote.collect import trees
from launch.remote.node import work_dir
from tests.launch.remote.node.working_folder import make, ranks_ran, snapshot_in


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job with a copy of the code, on a node whose home is the test's folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ranklift/jobs/t-1"
    folder.mkdir(parents=True)
    make(folder, snapshot_in(tmp_path))
    ranks_ran(folder)
    return folder


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))


def left(*largest: tuple[str, int], whole: bool = True) -> LeftFiles:
    size = sum(size for _, size in largest)
    return {"files": len(largest), "bytes": size, "largest": list(largest), "whole": whole}


def test_a_job_that_changed_nothing_left_nothing(job: Path) -> None:
    write(job / "work/outputs/model.pt", 5)
    assert trees.left_files("t-1") == left()
    assert trees.answer() == {"jobs": {}}


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_it_wrote_and_what_it_changed_is_left(job: Path, has_ended: bool) -> None:
    write(job / "work/checkpoints/last.ckpt", 300)
    with (job / "work/train.py").open("a") as file:
        file.write("# more")
    (job / "work/pkg/tool.sh").rename(job / "work/moved.sh")
    if has_ended:
        work_dir.clear(str(job))
    assert trees.left_files("t-1") == left(("checkpoints/last.ckpt", 300), ("train.py", 21), ("moved.sh", 10))


@pytest.mark.parametrize(
    "name",
    [
        "__pycache__/train.cpython-311.pyc",
        "pkg/.ipynb_checkpoints/a.ipynb",
        "tests/.pytest_cache/v",
        ".venv/lib/x",
        "outputs/x",
    ],
)
def test_tools_caches_environments_and_outputs_are_not(job: Path, name: str) -> None:
    write(job / "work/.venv/pyvenv.cfg", 1)
    write(job / "work" / name, 1)
    assert trees.left_files("t-1") == left()


def test_what_is_mounted_there_is_not(job: Path, tmp_path: Path) -> None:
    write(tmp_path / "share/theirs", 7)
    write(job / "work/mine", 3)
    (job / "work/data").mkdir()
    line = (
        'mount -t tmpfs none "$1" && echo theirs > "$1/theirs" && exec "$2" -c '
        "'from launch.remote.collect import trees; print(trees.left_files(\"t-1\"))'"
    )
    argv: list[str | Path] = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        line,
        "sh",
        job / "work/data",
        sys.executable,
    ]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(left(("mine", 3)))


def test_outputs_in_whose_place_the_job_left_a_file_are(job: Path) -> None:
    (job / "work/outputs").rmdir()
    write(job / "work/outputs", 4)
    assert trees.left_files("t-1") == left(("outputs", 4))


def test_the_largest_are_named_and_all_are_counted(job: Path) -> None:
    for size in range(1, 9):
        write(job / f"work/step-{size}.ckpt", size)
    found = trees.left_files("t-1")
    assert (found["files"], found["bytes"], found["whole"]) == (8, 36, True)
    assert found["largest"] == [(f"step-{size}.ckpt", size) for size in (8, 7, 6, 5, 4)]


def test_a_folder_of_very_many_files_is_not_read_to_its_end(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_MOST", 3)
    for number in range(9):
        write(job / f"work/{number}", 1)
    found = trees.left_files("t-1")
    assert (found["files"], found["whole"]) == (3, False)


def test_a_folder_that_cannot_be_read_is_not_said_to_be_empty(job: Path) -> None:
    write(job / "work/closed/mine", 1)
    (job / "work/closed").chmod(0)
    script = "from launch.remote.collect import trees; print(trees.answer())"
    plain = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*plain, sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == str({"jobs": {"t-1": left(whole=False)}})


def test_what_was_put_aside_since_no_rank_started_is_left_too(job: Path) -> None:
    write(job / "work/by-the-setup-line", 2)
    (job / "exits.jsonl").unlink()
    work_dir.clear(str(job))
    assert trees.answer("t-1") == {"jobs": {"t-1": left(("by-the-setup-line", 2))}}
