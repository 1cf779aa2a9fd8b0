"""A job's working folder: a copy of the pushed code that is the job's own, and what stays of it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from launch.remote.node import work_dir
from launch.remote.node.prepare import Unfit
from tests.launch.remote.node.working_folder import (
    folder,
    left,
    make,
    ranks_ran,
    seen,
)
from tests.launch.sealed import seal


def test_it_is_a_copy_with_modes_times_links_and_empty_folders(code: Path, job: Path) -> None:
    before = seen(code)
    assert seen(make(job, code)) == before
    assert seen(code) == before


def test_a_job_may_write_to_its_copies_of_read_only_files(code: Path, job: Path) -> None:
    (code / "train.py").chmod(0o444)
    (code / "pkg/tool.sh").chmod(0o555)
    work = make(job, code)
    assert [(work / name).stat().st_mode & 0o777 for name in ("train.py", "pkg/tool.sh")] == [0o644, 0o755]
    assert [(work / name).stat().st_nlink for name in ("train.py", "pkg/tool.sh")] == [1, 1]


def test_what_a_job_does_in_it_does_not_reach_the_snapshot(code: Path, job: Path) -> None:
    before = seen(code)
    work = make(job, code)
    with (work / "train.py").open("a") as file:
        file.write("more\n")
    with (work / "pkg/deep/data.bin").open("r+b") as file:
        file.write(b"in place")
    (work / "link").write_text("through a link")
    (work / "pkg/nothing").chmod(0o777)
    (work / "pkg/tool.sh").unlink()
    (work / "checkpoint.pt").write_text("mine")
    ranks_ran(job)
    work_dir.clear(str(job))
    assert seen(code) == before


def test_two_jobs_of_one_snapshot_have_a_folder_and_outputs_each(code: Path, tmp_path: Path) -> None:
    jobs = [folder(tmp_path, name) for name in ("t-1", "t-2")]
    for number, job in enumerate(jobs):
        work = make(job, code)
        (work / "checkpoint.pt").write_text(str(number))
        (work / "outputs" / "result").write_text(str(number))
    assert [(job / "work/checkpoint.pt").read_text() for job in jobs] == ["0", "1"]
    assert [(job / "outputs/result").read_text() for job in jobs] == ["0", "1"]


def test_a_job_without_code_has_an_empty_one(job: Path) -> None:
    assert [path.name for path in make(job, "").iterdir()] == ["outputs"]


def test_its_outputs_are_those_of_the_job_with_what_the_code_has_there(code: Path, job: Path) -> None:
    (code / "outputs" / "deep").mkdir(parents=True)
    (code / "outputs" / "deep" / "pushed").touch()
    work = make(job, seal(code))
    (work / "outputs" / "model.pt").write_text("mine")
    assert (job / "outputs/model.pt").read_text() == "mine"
    assert (job / "outputs/deep/pushed").exists()


def test_outputs_that_a_job_removes_and_makes_again_are_still_the_jobs(code: Path, job: Path) -> None:
    work = make(job, code)
    shutil.rmtree(work / "outputs")
    (work / "outputs").mkdir()
    (work / "outputs" / "model.pt").write_text("mine")
    assert (job / "outputs/model.pt").read_text() == "mine"


def test_outputs_that_a_launch_has_removed_are_there_for_the_next(code: Path, job: Path) -> None:
    shutil.rmtree(make(job, code) / "outputs")
    make(job, code)
    work_dir.make_outputs(str(job), ["model"])
    assert (job / "outputs/model").is_dir()


@pytest.mark.parametrize("target", ["pkg", "/somewhere/else", "nowhere"])
def test_a_link_in_the_place_of_outputs_becomes_a_folder(code: Path, job: Path, target: str) -> None:
    (code / "outputs").symlink_to(target)
    (make(job, seal(code)) / "outputs" / "model.pt").write_text("mine")
    assert [path.name for path in (job / "outputs").iterdir()] == ["model.pt"]
    assert not (job / "work/pkg/model.pt").exists()


def test_a_file_in_the_place_of_outputs_is_refused(code: Path, job: Path) -> None:
    (code / "outputs").touch()
    with pytest.raises(
        Unfit, match=r"outputs of the pushed code is a file, .*: rename the file, or name it in"
    ):
        make(job, seal(code))
    assert left(job) == []


def test_an_output_in_the_place_of_a_pushed_file_is_refused(code: Path, job: Path) -> None:
    (code / "outputs").mkdir()
    (code / "outputs" / "model").touch()
    make(job, seal(code))
    with pytest.raises(Unfit, match="work/outputs/model cannot be written: File exists"):
        work_dir.make_outputs(str(job), ["model"])


def test_a_restart_finds_what_the_launch_before_it_wrote_and_removed(code: Path, job: Path) -> None:
    work = make(job, code)
    (work / "checkpoint.pt").write_text("epoch 3")
    (work / "train.py").unlink()
    make(job, code)
    assert (work / "checkpoint.pt").read_text() == "epoch 3"
    assert not (work / "train.py").exists()


@pytest.mark.parametrize("refusal", [OSError(errno.EXDEV, "Invalid cross-device link"), None])
def test_where_ranges_cannot_be_copied_contents_are_sent(
    code: Path, job: Path, monkeypatch: pytest.MonkeyPatch, refusal: OSError | None
) -> None:
    def copy_file_range(*_: int) -> int:
        if refusal is not None:
            raise refusal
        return 0  # as on file systems whose files have no size before they are read

    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    assert seen(make(job, code)) == seen(code)


def test_an_error_that_is_no_want_of_room_names_the_file(
    code: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_file_range(*_: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    with pytest.raises(Unfit, match=rf"^{job}/work.new: the code cannot be copied: .*Input/output error"):
        make(job, code)
    assert left(job) == []


def test_it_is_ready_once_the_clock_of_its_files_has_moved_on(
    code: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is changed in one tick with the end of the copy could not be told from the copy.
    ticks: list[int] = []
    fstat = os.fstat

    class Stopped:
        st_ctime_ns = 0

    class MovedOn:
        st_ctime_ns = 1 << 62  # the file system's own clock may stand still for longer than this takes

    def fstat_of_a_slow_clock(fd: int) -> object:
        if Path(f"/proc/self/fd/{fd}").readlink().name != "copied":
            return fstat(fd)
        ticks.append(fd)
        return MovedOn() if len(ticks) > 3 else Stopped()

    monkeypatch.setattr(os, "fstat", fstat_of_a_slow_clock)
    make(job, code)
    assert len(ticks) == 4


class TestRunnersOfOneNode:
    def test_the_first_one_copies_and_the_others_wait_for_it(self, code: Path, job: Path) -> None:
        inodes: list[int] = []
        held: list[int] = []

        def one() -> None:
            held.append(work_dir.make(str(job), str(code), lambda wait_ms: time.sleep(wait_ms / 1000)))
            inodes.append((job / "work/train.py").stat().st_ino)

        threads = [threading.Thread(target=one, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        for descriptor in held:
            os.close(descriptor)
        assert len(inodes) == 8
        assert len(set(inodes)) == 1
        assert sorted(path.name for path in job.iterdir()) == ["copied", "outputs", "work"]

    def test_one_that_waits_gives_signs_of_life_and_may_be_stopped(self, code: Path, job: Path) -> None:
        (job / "work.new").mkdir()
        held = os.open(job / "work.new", os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        beats: list[int] = []

        def rest(wait_ms: int) -> None:
            beats.append(wait_ms)
            if len(beats) == 3:
                raise Unfit("stopped")

        try:
            with pytest.raises(Unfit, match="stopped"):
                work_dir.make(str(job), str(code), rest)
        finally:
            os.close(held)
        assert len(beats) == 3

    def test_a_long_copy_gives_signs_of_life(
        self, code: Path, job: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(work_dir, "_BETWEEN_S", 0.0)
        beats: list[int] = []
        os.close(work_dir.make(str(job), str(code), beats.append))
        assert len(beats) >= 4

    def test_one_that_was_stopped_leaves_no_half_of_it(self, code: Path, job: Path) -> None:
        def rest(_: int) -> None:
            raise Unfit("stopped")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(work_dir, "_BETWEEN_S", 0.0)
            with pytest.raises(Unfit, match="stopped"):
                work_dir.make(str(job), str(code), rest)
        assert left(job) == []

    def test_a_copy_that_was_killed_is_begun_again(self, code: Path, job: Path) -> None:
        killed = (
            "import os, sys; from launch.remote.node import work_dir\n"
            "work_dir._BETWEEN_S = 0\n"
            "work_dir.make(sys.argv[1], sys.argv[2], lambda _: os.kill(os.getpid(), 9))\n"
        )
        done = subprocess.run([sys.executable, "-c", killed, job, code], check=False)
        assert done.returncode == -9
        assert (job / "work.new").is_dir()
        assert not (job / "work").exists()
        assert seen(make(job, code)) == seen(code)
        assert not (job / "work.new").exists()


class TestANodeThatCannotHaveIt:
    def test_lacks_the_snapshot(self, code: Path, job: Path) -> None:
        with pytest.raises(Unfit, match=rf"^the pushed code {code}x is not on this node: push again$"):
            make(job, f"{code}x")
        assert left(job) == []

    def test_lacks_the_room_for_it(self, code: Path, tmp_path: Path) -> None:
        shown = on_a_disk(tmp_path, "128k", code)
        assert "/disk: no room for the job's copy of the code: " in shown
        needed, available = 200_704 + 4096 * 2 + 4096 * 4, 128 * 1024
        assert f": {needed} bytes in 10 files and folders are needed, " in shown
        assert f", {available - 4096} bytes and " in shown or f", {available} bytes and " in shown
        assert shown.endswith("files are available; remove jobs that have ended; left: []")

    def test_lacks_the_room_in_the_middle_of_it(self, code: Path, tmp_path: Path) -> None:
        shown = on_a_disk(tmp_path, "128k", code, "work_dir._check_room = lambda *_: None")
        assert " bytes in 10 files and folders are needed, " in shown
        assert shown.endswith("left: []")


def on_a_disk(tmp_path: Path, size: str, code: Path, more: str = "") -> str:
    """What is reported of a copy on a disk of that size, in a namespace of its own."""
    script = f"""
import os, sys
from launch.remote.node import work_dir
from launch.remote.node.prepare import Unfit
{more}
try:
    work_dir.make(sys.argv[1], sys.argv[2], lambda _: None)
except Unfit as error:
    print(f"{{error}}; left: {{os.listdir(sys.argv[1])}}")
"""
    disk = tmp_path / "disk"
    disk.mkdir()
    line = f'mount -t tmpfs -o size={size} tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", line, "sh"]
    done = subprocess.run(
        [*argv, disk, sys.executable, script, code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
