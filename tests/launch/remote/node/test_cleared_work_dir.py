"""What stays of a job's working folder once the job has ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch.remote.node import work_dir
from tests.launch.remote.node.working_folder import (
    left,
    make,
    no_rest,
    ranks_ran,
    seen,
)

ROOT = Path(__file__).resolve().parents[4]
MAKE = "os.close(work_dir.make(job, code, lambda _: None))"
CLOSED = f"""
import os, sys
from launch.remote.node import work_dir
job, code, *names = sys.argv[1:]
{MAKE}
open(job + "/exits.jsonl", "w").close()
# what the job does
for name in names:
    os.chmod(job + "/" + name, 0)
work_dir.clear(job)
"""


def as_nobody_special(script: str, *names: str, job: Path, code: Path) -> str:
    """What a script has to complain of that runs with an ordinary user's rights to files."""
    plain = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    argv = [*plain, sys.executable, "-c", script, str(job), str(code), *names]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60).stderr


def test_an_untouched_one_disappears_whole(code: Path, job: Path) -> None:
    make(job, code)
    ranks_ran(job)
    work_dir.clear(str(job))
    assert left(job) == []


def test_what_the_job_wrote_or_changed_stays_and_nothing_else(code: Path, job: Path) -> None:
    work = make(job, code)
    (work / "new").mkdir()
    (work / "new" / "checkpoint.pt").write_text("mine")
    times = (work / "pkg/deep/data.bin").stat()
    with (work / "pkg/deep/data.bin").open("r+b") as file:
        file.write(b"in place")
    os.utime(work / "pkg/deep/data.bin", ns=(times.st_atime_ns, times.st_mtime_ns))
    (work / "pkg/tool.sh").chmod(0o700)
    (work / "link").rename(work / "renamed")
    (work / "folder-without-files").mkdir()
    ranks_ran(job)
    work_dir.clear(str(job))
    assert left(job) == [
        "work",
        "work/folder-without-files",
        "work/new",
        "work/new/checkpoint.pt",
        "work/pkg",
        "work/pkg/deep",
        "work/pkg/deep/data.bin",
        "work/pkg/tool.sh",
        "work/renamed",
    ]


@pytest.mark.parametrize("attempt", range(20))
def test_a_write_right_after_the_copy_is_seen(code: Path, job: Path, attempt: int) -> None:
    (make(job, code) / "pkg/tool.sh").chmod(0o755)
    ranks_ran(job)
    work_dir.clear(str(job))
    assert left(job) == ["work", "work/pkg", "work/pkg/tool.sh"]


def test_what_python_compiled_goes_too(code: Path, job: Path) -> None:
    work = make(job, code)
    (work / "pkg/__pycache__").mkdir()
    (work / "pkg/__pycache__/tool.cpython-311.pyc").touch()
    (work / "mine.pyc").touch()
    ranks_ran(job)
    work_dir.clear(str(job))
    assert left(job) == ["work", "work/mine.pyc"]


def test_what_the_setup_line_made_is_put_aside_where_no_rank_was_started(code: Path, job: Path) -> None:
    (make(job, code) / "by-the-setup-line").touch()
    work_dir.clear(str(job))
    aside, made = left(job)
    assert aside.startswith("work.")
    assert made == f"{aside}/by-the-setup-line"
    assert not (make(job, code) / "by-the-setup-line").exists()


def test_a_copy_that_was_killed_goes(job: Path) -> None:
    (job / "work.new" / "pkg").mkdir(parents=True)
    (job / "work.new" / "pkg" / "half").touch()
    work_dir.clear(str(job))
    assert left(job) == []


def test_one_that_another_runner_has_removed_meanwhile_is_no_error(
    code: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = make(job, code)
    ranks_ran(job)
    # The other holds the lock until it is done: this one has the folder open, and then locks what is gone.
    monkeypatch.setattr(fcntl, "flock", lambda *_: shutil.rmtree(work, ignore_errors=True))
    work_dir.clear(str(job))
    assert left(job) == []


def test_the_last_runner_clears_it(code: Path, job: Path) -> None:
    first, second = (work_dir.make(str(job), str(code), no_rest) for _ in range(2))
    ranks_ran(job)
    os.close(first)
    work_dir.clear(str(job))
    assert (job / "work/train.py").exists()
    os.close(second)
    work_dir.clear(str(job))
    assert left(job) == []


def test_it_is_cleared_once(code: Path, job: Path) -> None:
    (make(job, code) / "mine").touch()
    ranks_ran(job)
    for _ in range(2):
        work_dir.clear(str(job))
    assert left(job) == ["work", "work/mine"]


def test_a_folder_that_leads_elsewhere_is_not_followed(code: Path, job: Path, tmp_path: Path) -> None:
    (make(job, code) / "elsewhere").symlink_to(code)
    before = seen(code)
    ranks_ran(job)
    work_dir.clear(str(job))
    assert seen(code) == before
    assert left(job) == ["work", "work/elsewhere"]


def test_one_that_the_job_closed_to_its_own_user_goes_all_the_same(code: Path, job: Path) -> None:
    assert as_nobody_special(CLOSED, "work/pkg/deep", "work/pkg", "work", ".", job=job, code=code) == ""
    assert left(job) == []


def test_what_the_job_wrote_in_a_closed_one_stays_and_can_be_read(code: Path, job: Path) -> None:
    written = CLOSED.replace(
        "# what the job does", "open(os.path.join(job, 'work', 'pkg', 'mine'), 'w').close()"
    )
    assert as_nobody_special(written, "work/pkg", "work", job=job, code=code) == ""
    assert left(job) == ["work", "work/pkg", "work/pkg/mine"]
    assert all(path.stat().st_mode & 0o700 == 0o700 for path in (job / "work", job / "work/pkg"))


def test_one_that_the_job_renamed_goes_all_the_same(code: Path, job: Path) -> None:
    make(job, code).rename(job / "work.mine")
    (job / "work.mine" / "result").touch()
    (job / "work").mkdir()
    (job / "work" / "other").touch()
    ranks_ran(job)
    work_dir.clear(str(job))
    assert left(job) == ["work", "work.mine", "work.mine/result", "work/other"]


def test_a_folder_elsewhere_in_its_place_stays_as_it_is(code: Path, job: Path, tmp_path: Path) -> None:
    make(job, code).rename(tmp_path / "moved-out")
    (job / "work").symlink_to(tmp_path / "moved-out")
    before = seen(tmp_path / "moved-out")
    ranks_ran(job)
    work_dir.clear(str(job))
    assert seen(tmp_path / "moved-out") == before


def test_a_restart_goes_on_in_one_that_the_launch_before_it_closed(code: Path, job: Path) -> None:
    again = CLOSED.replace("work_dir.clear(job)", MAKE)
    assert as_nobody_special(again, "work", job=job, code=code) == ""
    assert (job / "work" / "train.py").exists()


def test_a_job_that_never_had_one_is_none_of_its_business(tmp_path: Path) -> None:
    work_dir.clear(str(tmp_path / "no-such-job"))
