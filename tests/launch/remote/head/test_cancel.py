"""Cancel requests, and the end of a job's processes on one node without its supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from launch.remote.base import job_dir
from launch.remote.base.processes import identity, is_alive
from launch.remote.head import cancel
from tests.launch.remote.sample_records import sample_plan, sample_state
from tests.launch.standin import until

JOB = "sweep-me-20260301-090507-0f3a"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        process.kill()
        process.communicate()


def begun(made: list[subprocess.Popen[bytes]], script: str, job: str = JOB) -> subprocess.Popen[bytes]:
    """A process of a job that prints a line when it is ready."""
    environment = dict(os.environ, RANKLIFT_JOB_ID=job)
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", f"import os, signal, time\n{script}\nprint(flush=True)\ntime.sleep(60)"],
        env=environment,
        stdout=subprocess.PIPE,
    )
    made.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    return process


class TestGrace:
    def test_there_is_no_request_at_first(self) -> None:
        folder = job_dir.Folder(JOB)
        folder.create(sample_plan(JOB))
        assert cancel.cancel_request(folder, 3.0) is None

    def test_it_is_the_jobs_own_unless_a_request_has_one_and_the_last_counts(self) -> None:
        folder = job_dir.Folder(JOB)
        folder.create(sample_plan(JOB, grace_s=3.0))
        folder.write_state(sample_state(JOB, supervisor=identity(os.getpid())))
        for grace, expected in ((None, 3.0), (60.0, 60.0), (None, 60.0), (0.0, 0.0)):
            cancel._request(folder, grace)
            assert cancel.cancel_request(folder, 3.0) == (expected, "")

    def test_an_ended_job_gets_no_request(self) -> None:
        folder = job_dir.Folder(JOB)
        folder.create(sample_plan(JOB, grace_s=3.0))
        folder.write_state(sample_state(JOB, state="FAILED"))
        answer = cancel.cancel(JOB, None)
        assert (answer["before"], answer["state"]["state"], answer["lost"]) == ("FAILED", "FAILED", [])
        assert cancel.cancel_request(folder, 3.0) is None

    def test_the_end_of_its_upload_is_a_newer_request_than_that_of_its_own_end(self) -> None:
        folder = job_dir.Folder(JOB)
        folder.create(sample_plan(JOB, grace_s=3.0))
        folder.write_state(sample_state(JOB, state="CANCELLED"))
        cancel._request(folder, None)
        first = cancel.cancelled_at(folder)
        assert cancel.end_upload(JOB) == {"uploading": False}
        assert cancel.cancelled_at(folder) > first > 0

    def test_the_end_of_an_upload_waits_for_the_supervisor(
        self, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        folder = job_dir.Folder(JOB)
        folder.create(sample_plan(JOB, grace_s=3.0))
        supervisor = begun(processes, "", job="")
        state = sample_state(JOB, state="CANCELLED", supervisor=identity(supervisor.pid))
        folder.write_state(state)
        threading.Timer(0.5, supervisor.kill).start()
        assert cancel.end_upload(JOB) == {"uploading": True}
        assert not is_alive(state["supervisor"])


class TestASupervisorThatDoesNotReact:
    def made(self, supervisor: int) -> job_dir.Folder:
        folder = job_dir.Folder(JOB)
        folder.create(sample_plan(JOB, grace_s=3.0))
        folder.write_state(sample_state(JOB, supervisor=identity(supervisor)))
        return folder

    def test_it_is_ended_and_the_job_is_lost(self, processes: list[subprocess.Popen[bytes]]) -> None:
        stopped = begun(processes, "")
        stopped.send_signal(signal.SIGSTOP)
        folder = self.made(stopped.pid)
        cancel._request(folder, None)
        answer = cancel.release(JOB)["state"]
        assert stopped.wait(5) == -signal.SIGKILL
        assert (answer["state"], answer["exit_status"]) == ("LOST", 255)
        assert answer["reason"] == "the job's supervisor did not react to the cancel and was ended"
        assert folder.state() == answer

    def test_it_is_left_alone_without_a_request(self, processes: list[subprocess.Popen[bytes]]) -> None:
        busy = begun(processes, "")
        self.made(busy.pid)
        assert cancel.release(JOB)["state"]["state"] == "RUNNING"
        assert busy.poll() is None

    def test_so_is_a_process_that_has_only_its_number(self, processes: list[subprocess.Popen[bytes]]) -> None:
        other = begun(processes, "")
        folder = self.made(other.pid)
        gone = dict(identity(other.pid), started=1)
        folder.write_state(sample_state(JOB, supervisor=gone))
        cancel._request(folder, None)
        assert cancel.release(JOB)["state"]["state"] == "LOST"
        assert other.poll() is None


class TestSweeping:
    def test_sigterm_first_and_only_those_of_the_job(self, processes: list[subprocess.Popen[bytes]]) -> None:
        polite = begun(processes, "")
        other = begun(processes, "", job=JOB + "0")
        assert cancel.sweep(JOB, 20.0) == {"ended": 1, "left": []}
        assert polite.wait(5) == -signal.SIGTERM
        assert other.poll() is None

    def test_sigkill_for_those_that_ignore_it_or_are_stopped_once_the_grace_is_over(
        self, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        deaf = begun(processes, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
        stopped = begun(processes, "")
        stopped.send_signal(signal.SIGSTOP)
        while Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)  # till it stops, a SIGTERM would come first
        begin = time.monotonic()
        assert cancel.sweep(JOB, 0.5) == {"ended": 2, "left": []}
        assert time.monotonic() - begin >= 0.5
        assert {deaf.wait(5), stopped.wait(5)} == {-signal.SIGKILL}

    def test_no_grace_is_sigkill_at_once(self, processes: list[subprocess.Popen[bytes]]) -> None:
        polite = begun(processes, "")
        assert cancel.sweep(JOB, 0.0) == {"ended": 1, "left": []}
        assert polite.wait(5) == -signal.SIGKILL

    @pytest.mark.parametrize("words", [("node", JOB), ("rank",)])
    def test_a_runner_that_is_stopped_lets_go_of_its_slots(
        self, processes: list[subprocess.Popen[bytes]], tmp_path: Path, words: tuple[str, ...]
    ) -> None:
        entry = tmp_path / "__main__.py"
        entry.write_text("import time\nprint(flush=True)\ntime.sleep(60)\n")

        def runner(*words: str, job: str) -> subprocess.Popen[bytes]:
            environment = dict(os.environ, RANKLIFT_RUNNER_OF=job)
            argv = [sys.executable, "-S", str(entry), *words]
            processes.append(subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE))
            assert processes[-1].stdout is not None
            processes[-1].stdout.readline()
            return processes[-1]

        stopped = runner(*words, job=JOB)
        other = runner(*(word.replace(JOB, JOB + "0") for word in words), job=JOB + "0")
        stopped.send_signal(signal.SIGSTOP)
        assert cancel.sweep(JOB, 0.0) == {"ended": 1, "left": []}
        assert stopped.wait(5) == -signal.SIGKILL
        assert other.poll() is None

    def test_nothing_of_it_was_there(self) -> None:
        assert cancel.sweep(JOB, 5.0) == {"ended": 0, "left": []}


def has_not_ended(pid: int) -> bool:
    try:
        return bool(identity(pid))
    except OSError:
        return False


class TestRecordsOfKilledRunners:
    """Processes whose environment names no job, started by a runner that was killed with its guardians."""

    RUNNER = (
        "import os, sys, time\n"
        "from launch.remote import descent\n"
        "from launch.remote.base import processes\n"
        "processes.become_subreaper()\n"
        "pid, *_ = processes.spawn(['sh', '-c', sys.argv[2]], {'PATH': os.environ['PATH']}, '/')\n"
        "while not os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
        "open(sys.argv[1], 'wb').write(descent.descent())\n"
        "print(flush=True)\n"
        "time.sleep(60)\n"
    )

    @pytest.fixture
    def killed(self, tmp_path: Path) -> Iterator[Path]:
        """The record of a runner that was killed; its process writes its children's pids into ``pids``."""
        folder = job_dir.Folder(JOB)
        folder.create(sample_plan(JOB))
        record = Path(folder.path) / f"descent.{os.uname().nodename}.1"
        ready, pids, go = tmp_path / "ready", tmp_path / "pids", tmp_path / "go"
        script = (
            f"env -i setsid sh -c 'echo $$ >>{pids}; echo >{ready}; until [ -e {go} ]; do sleep 0.01; done; "
            f"sleep 60 & echo $! >>{pids}; echo >{go}.done'"
        )
        argv = [sys.executable, "-c", self.RUNNER, str(record), script, str(ready)]
        runner = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert runner.stdout is not None
        runner.stdout.readline()
        runner.kill()
        runner.communicate()
        yield record
        for pid in map(int, pids.read_text().split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def left(self, tmp_path: Path) -> list[int]:
        pids = map(int, (tmp_path / "pids").read_text().split())
        return [pid for pid in pids if has_not_ended(pid)]

    def test_they_are_ended(self, killed: Path, tmp_path: Path) -> None:
        assert len(self.left(tmp_path)) == 1
        assert cancel.sweep(JOB, 0.0)["left"] == []
        assert self.left(tmp_path) == []

    def test_what_they_have_started_since_is_ended_although_they_have_gone(
        self, killed: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "go").touch()
        until((tmp_path / "go.done").exists)
        first = int((tmp_path / "pids").read_text().split()[0])
        until(lambda: not has_not_ended(first))
        assert len(self.left(tmp_path)) == 1
        cancel.sweep(JOB, 0.0)
        assert self.left(tmp_path) == []

    @pytest.mark.parametrize("change", ["start", "boot", "node", "torn", "pipe"])
    def test_a_record_that_is_not_of_these_processes_ends_none(
        self, killed: Path, tmp_path: Path, change: str
    ) -> None:
        boot, *lines = killed.read_bytes().split(b"\n")
        assert lines
        if change == "start":
            lines = [b"%s %d 0" % (line.split()[0], int(line.split()[1]) + 1) for line in lines]
        elif change == "boot":
            boot = b"another"
        elif change == "torn":
            lines = [line[: line.rindex(b" ")] for line in lines]
        killed.write_bytes(b"\n".join([boot, *lines]))
        if change == "node":
            killed.rename(killed.with_name("descent.another.1"))
        elif change == "pipe":
            killed.unlink()
            os.mkfifo(killed)
        cancel.sweep(JOB, 0.0)
        assert len(self.left(tmp_path)) == 1
