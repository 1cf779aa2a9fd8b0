"""What is cleared of a job's working folder is its copy of the code alone, wherever a rank led elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launch.remote.node import work_dir
from tests.launch.remote.node.working_folder import make, ranks_ran


def test_a_folder_that_was_moved_there_stays_with_its_old_files(
    code: Path, job: Path, tmp_path: Path
) -> None:
    (tmp_path / "dataset/images").mkdir(parents=True)
    (tmp_path / "dataset/images/1.png").touch()
    (tmp_path / "dataset/__pycache__").mkdir()
    (tmp_path / "dataset/__pycache__/a.pyc").touch()
    work = make(job, code)
    (tmp_path / "dataset").rename(work / "data")
    (work / "pkg").rename(work / "package")
    ranks_ran(job)
    work_dir.clear(str(job))
    assert (work / "data/images/1.png").exists()
    assert (work / "package/deep/data.bin").exists()


def test_what_is_mounted_there_stays(code: Path, job: Path, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "share/results.txt").touch()
    (tmp_path / "share/pkg").mkdir()
    (tmp_path / "share/pkg/theirs").touch()
    work = make(job, code)
    (work / "data").mkdir()
    ranks_ran(job)
    line = (
        'mount --bind "$1/share" "$2/data" && mount --bind "$1/share/pkg" "$2/pkg" && exec "$3" -c '
        "'import sys; from launch.remote.node import work_dir; work_dir.clear(sys.argv[1])' \"$4\""
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", line, "sh"]
    subprocess.run([*argv, tmp_path, work, sys.executable, job], check=True)
    assert (tmp_path / "share/results.txt").exists()
    assert (tmp_path / "share/pkg/theirs").exists()
    assert not (work / "train.py").exists()


def test_a_link_in_its_place_is_not_followed(code: Path, job: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    work = make(job, code)
    ranks_ran(job)
    work.rename(work.with_name("mine"))
    work.symlink_to(tmp_path / "precious")
    work_dir.clear(str(job))
    assert (tmp_path / "precious/file").exists()


def test_a_record_that_is_torn_removes_nothing(code: Path, job: Path) -> None:
    work = make(job, code)
    ranks_ran(job)
    (job / "copied").write_bytes((job / "copied").read_bytes()[:40])
    work_dir.clear(str(job))
    assert (work / "pkg/tool.sh").exists()
