"""What breaks while a job runs, on stand-in nodes: each is found and reported, and nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from launch.client.cancel import end_supervisor, sweep_node
from launch.job.spec import Kind
from launch.remote.base.processes import start_time
from tests.launch.standin import REMOTE, Nodes, Started, left_of, lines, open_mpi, shell, start, states, until
from tests.launch.whole_jobs.test_restarting import mpirun_of, runner_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
WAIT = "echo up; sleep 300"


def up(nodes: Nodes, script: str = WAIT, kind: Kind = "pytorch", **options: object) -> Started:
    """A job of three ranks that all have printed a line."""
    started = start(nodes, shell(script, kind, **options))
    until(lambda: len(lines(started.events)) == 3)
    return started


def start_cancel(nodes: Nodes, job: str, *grace: str) -> subprocess.Popen[bytes]:
    """A cancel that somebody else asks for."""
    return subprocess.Popen(
        ["python3", "-I", "-S", ".ranklift/remote/hash/__main__.py", "cancel", job, *grace],
        cwd=nodes.folder / "node000000",
        env=nodes.env,
        stdout=subprocess.DEVNULL,
    )


def ranks_of(job: str) -> list[int]:
    """Processes that carry the job's id."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"RANKLIFT_JOB_ID={job}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def parent(pid: int) -> int:
    """The process that started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def daemon_above(pid: int) -> int:
    """mpirun's daemon that started a runner: the first process above it without its command line."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    while Path(f"/proc/{pid}/cmdline").read_bytes() == words:
        pid = parent(pid)
    return pid


class TestHowARankEnds:
    @KINDS
    def test_one_that_returns_early_is_no_failure(self, nodes: Nodes, kind: Kind) -> None:
        state, events = nodes.run(shell("[ $RANK = 0 ] && exit 0; sleep 1.5; echo done", kind))
        assert state.state == "SUCCEEDED"
        assert sorted(lines(events)) == [(1, "done"), (2, "done")]

    @KINDS
    def test_one_that_hangs_past_the_time_limit_is_named(self, nodes: Nodes, kind: Kind) -> None:
        state, _ = nodes.run(shell("echo on; [ $RANK = 1 ] || exit 0; sleep 300", kind, timeout_s=3))
        assert (state.state, state.exit_status) == ("FAILED", 124)
        assert state.reason == "its time limit of 3 s was reached; still running: rank 1 on node000001"
        assert state.failure is not None
        assert (state.failure.rank, state.failure.last_lines) == (1, ("on",))
        assert left_of(state.job) == []

    @pytest.mark.parametrize(
        ("end", "words"),
        [
            ("kill -9 $$", "was ended by signal 9 (SIGKILL)"),
            ("exit 255", "ended with exit status 255"),
            (
                "sh -c 'kill -11 $$'; exit $?",
                "ended with exit status 139, as a shell does after signal 11 (SIGSEGV)",
            ),
        ],
    )
    def test_a_signal_is_told_from_a_status_that_looks_like_one(
        self, nodes: Nodes, end: str, words: str
    ) -> None:
        state, _ = nodes.run(shell(f"[ $RANK = 1 ] || sleep 300; {end}"))
        assert state.reason == f"rank 1 on node000001 {words}"


class TestWhatHoldsTheJob:
    @KINDS
    def test_a_killed_supervisor_is_found_by_the_next_look_and_its_ranks_end_by_themselves(
        self, nodes: Nodes, kind: Kind
    ) -> None:
        started = up(nodes, kind=kind)
        kept = nodes.folder / "node000000/.ranklift/jobs" / started.job / "state.json"
        os.kill(json.loads(kept.read_text())["supervisor"]["pid"], signal.SIGKILL)
        (found,) = nodes.jobs()
        assert (found.state, found.exit_status) == ("LOST", 255)
        until(lambda: not left_of(started.job))
        assert nodes.jobs() == [found]

    def test_a_killed_mpirun_ends_the_job(self, nodes: Nodes) -> None:
        started = up(nodes, 'trap "" TERM; echo up; while :; do sleep 1; done', "mpi", grace_s=1)
        begun = time.monotonic()
        os.kill(mpirun_of(started), signal.SIGKILL)
        state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 137)
        assert state.reason.startswith("mpirun was ended by signal 9 (SIGKILL)")
        assert time.monotonic() - begun < 15
        assert left_of(started.job) == []

    def test_a_killed_runner_of_mpiruns_is_named_by_its_rank(self, nodes: Nodes) -> None:
        started = up(nodes, kind="mpi")
        os.kill(runner_of(nodes, 2, started.job), signal.SIGKILL)
        state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert state.reason == "node000002 (rank 2) is lost: its runner was killed, or the node is gone"
        assert state.failure is not None
        assert (state.failure.rank, state.failure.node) == (None, "node000002")
        assert left_of(started.job) == []

    @KINDS
    def test_a_runner_that_got_a_signal_is_named_and_the_job_ends(self, nodes: Nodes, kind: Kind) -> None:
        started = up(nodes, kind=kind)
        os.kill(runner_of(nodes, 1, started.job), signal.SIGTERM)
        state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert state.reason.startswith(
            "node000001 (rank 1) is lost: its runner ended its ranks without an order: it got a signal, or "
        )
        assert left_of(started.job) == []

    @KINDS
    def test_all_ranks_of_a_lost_node_are_named(self, nodes: Nodes, kind: Kind) -> None:
        (nodes.folder / "two").mkdir()
        two = Nodes(nodes.folder / "two", [2, 2])
        started = start(two, shell(WAIT, kind, processes_per_node=2))
        until(lambda: len(lines(started.events)) == 4)
        os.kill(runner_of(two, 1, started.job), signal.SIGKILL)
        assert started.end().reason.startswith("node000001 (ranks 2, 3) is lost: ")

    def test_a_killed_daemon_of_mpiruns_is_named_by_its_node(self, nodes: Nodes) -> None:
        started = up(nodes, kind="mpi")
        os.kill(daemon_above(runner_of(nodes, 1, started.job)), signal.SIGKILL)
        state = started.end()
        # version 5 names the host by what that calls itself, and ends with 0
        why = (
            "mpirun ended with exit status "
            if open_mpi().name == "openmpi-4"
            else "its runner ended its ranks"
        )
        assert state.reason.startswith(f"node000001 (rank 1) is lost: {why}")
        assert state.failure is not None
        assert (state.failure.rank, state.failure.node) == (None, "node000001")
        kept = nodes.folder / "node000000/.ranklift/jobs" / started.job / "events.jsonl"
        result = [json.loads(line) for line in kept.read_text().splitlines()]
        assert [event["node"] for event in result if event["event"] == "lost-node"] == ["node000001"]
        assert left_of(started.job) == []

    def test_a_job_whose_daemon_of_mpiruns_is_killed_fails_though_its_ranks_end_with_0(
        self, nodes: Nodes
    ) -> None:
        started = up(nodes, 'trap "exit 0" TERM; echo up; sleep 300 & wait', "mpi")
        os.kill(daemon_above(runner_of(nodes, 1, started.job)), signal.SIGKILL)
        state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert state.reason.startswith("node000001 (rank 1) is lost: ")

    def test_a_job_whose_runners_all_got_a_signal_fails_though_its_ranks_end_with_0(
        self, nodes: Nodes
    ) -> None:
        started = up(nodes, 'trap "exit 0" TERM; echo up; sleep 300 & wait')
        for node in range(3):
            os.kill(runner_of(nodes, node, started.job), signal.SIGTERM)
        state = started.end()
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert "is lost: its runner ended its ranks without an order" in state.reason

    def test_a_runner_that_is_stopped_keeps_no_slots(self, nodes: Nodes) -> None:
        ssh = nodes.bin / "ssh"
        ssh.write_text(
            ssh.read_text().replace("&& exec sh", "&& sh")
        )  # no end of the client's is the runner's
        started = up(nodes)
        stopped = runner_of(nodes, 1, started.job)
        os.kill(stopped, signal.SIGSTOP)
        try:
            state = started.end()
            assert state.reason == "node000001 (rank 1) is lost: no sign of life for 12 s"
            next_one, _ = nodes.run(shell("true"))
            assert next_one.state == "SUCCEEDED"
        finally:
            with suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)


class TestBeingCancelled:
    @KINDS
    def test_while_ranks_are_stopped(self, nodes: Nodes, kind: Kind) -> None:
        started = up(nodes, 'trap "echo saved; exit" TERM; echo up; sleep 300 & wait', kind)
        for pid in ranks_of(started.job):
            os.kill(pid, signal.SIGSTOP)
        assert nodes.cancel(started.job).state == "CANCELLED"
        assert left_of(started.job) == []
        started.end()
        assert [text for _, text in lines(started.events)].count("saved") == 3

    @KINDS
    def test_while_it_starts(self, nodes: Nodes, kind: Kind) -> None:
        started = start(nodes, shell("touch $HOME/ran", kind, setup="sleep 300"))
        until(lambda: states(started.events) == ["STARTING"])
        assert nodes.cancel(started.job).state == "CANCELLED"
        assert left_of(started.job) == []
        assert not list(nodes.folder.glob("node*/ran"))

    def test_while_it_ends_changes_nothing(self, nodes: Nodes) -> None:
        script = 'trap "" TERM; echo up; [ $RANK = 1 ] && sleep 0.3 && exit 3; while :; do sleep 1; done'
        started = up(nodes, script, grace_s=3)
        until(lambda: len(lines(started.events)) == 3)
        time.sleep(1)
        state = nodes.cancel(started.job)
        assert (state.state, state.exit_status) == ("FAILED", 3)
        assert left_of(started.job) == []

    def test_twice_at_once(self, nodes: Nodes) -> None:
        started = up(nodes, 'trap "" TERM; echo up; while :; do sleep 1; done', grace_s=1)
        cancelled = [start_cancel(nodes, started.job) for _ in range(2)]
        assert [one.wait(30) for one in cancelled] == [0, 0]
        assert started.end().state == "CANCELLED"
        assert nodes.cancel(started.job) == started.end()

    def test_again_with_less_patience(self, nodes: Nodes) -> None:
        started = up(nodes, 'trap "" TERM; echo up; while :; do sleep 1; done', grace_s=60)
        first = start_cancel(nodes, started.job)
        time.sleep(0.5)
        assert start_cancel(nodes, started.job, "0.2").wait(30) == 0
        assert first.wait(30) == 0
        assert started.end().state == "CANCELLED"
        assert left_of(started.job) == []


class TestASupervisorThatIsStopped:
    @KINDS
    def test_it_is_ended_with_its_job_and_the_next_one_starts(self, nodes: Nodes, kind: Kind) -> None:
        started = up(nodes, kind=kind)
        kept = nodes.folder / "node000000/.ranklift/jobs" / started.job / "state.json"
        os.kill(json.loads(kept.read_text())["supervisor"]["pid"], signal.SIGSTOP)
        waiting = start(nodes, shell("true", kind))
        until(lambda: states(waiting.events) == ["QUEUED"])
        cancelled = start_cancel(nodes, started.job, "0")
        until((kept.parent / "cancel").exists)
        assert not sweep_node(started.job, nodes.head, remote="hash", grace_s=0).left
        assert end_supervisor(started.job, nodes.head, remote="hash").state == "LOST"
        assert cancelled.wait(5) == 0
        assert waiting.end().state == "SUCCEEDED"
        assert (started.end().state, left_of(started.job)) == ("LOST", [])


class TestWhereNothingCanBeWritten:
    @KINDS
    def test_a_node_without_a_temporary_folder_takes_no_part(self, nodes: Nodes, kind: Kind) -> None:
        (nodes.folder / "node000001/tmp").rmdir()
        (nodes.folder / "node000001/tmp").touch()  # Open MPI would make it
        state, _ = nodes.run(shell("touch $HOME/ran", kind, requires=("json",)))
        assert (state.state, state.exit_status) == ("FAILED", 255)
        place = f"{nodes.folder}/node000001/tmp"
        why = f"node000001: {place} cannot be written: Not a directory"
        assert state.reason == f"no rank was started: {why}"
        assert not list(nodes.folder.glob("node*/ran"))

    @KINDS
    def test_nor_does_a_head(self, nodes: Nodes, kind: Kind) -> None:
        nodes.env["TMPDIR"] = "/proc"
        state, _ = nodes.run(shell("touch $HOME/ran", kind))
        assert state.reason.startswith("no rank was started: node000000: /proc cannot be written: ")
        assert not list(nodes.folder.glob("node*/ran"))

    @KINDS
    def test_nor_one_that_cannot_keep_logs(self, nodes: Nodes, kind: Kind) -> None:
        (nodes.folder / "node000002/.ranklift/jobs").touch()
        state, _ = nodes.run(shell("touch $HOME/ran", kind))
        assert state.state == "FAILED"
        assert "node000002: " in state.reason
        assert " cannot be written: Not a directory" in state.reason
        assert not list(nodes.folder.glob("node*/ran"))


@pytest.mark.parametrize(("node", "seconds"), [(1, 2.0), (0, -2.0), (2, 3600.0)])
def test_the_first_rank_to_fail_is_named_whatever_its_nodes_clock_shows(
    nodes: Nodes, node: int, seconds: float
) -> None:
    remote = nodes.folder / f"node00000{node}/.ranklift/remote/hash"
    remote.unlink()
    shutil.copytree(REMOTE, remote, ignore=shutil.ignore_patterns("__pycache__"))
    loop = remote / "node/loop.py"
    loop.write_text(loop.read_text().replace("time.time()", f"(time.time() + {seconds})"))
    failed = nodes.folder / "failed"
    job = up(
        nodes,
        f'echo up; until [ -e {nodes.folder}/go ]; do sleep 0.01; done; [ "$RANK" = 1 ] && touch {failed} '
        f"&& exit 7; until [ -e {failed} ]; do sleep 0.01; done; sleep 0.02; exit 9",
    )
    (nodes.folder / "go").touch()
    state = job.end()
    assert (state.exit_status, state.failure and state.failure.rank) == (7, 1)


@KINDS
def test_what_ranks_have_started_ends_although_their_runner_and_its_guardians_were_killed(
    nodes: Nodes, kind: Kind
) -> None:
    pid = nodes.folder / "pid"
    started = up(
        nodes, f'[ "$RANK" != 1 ] || env -i setsid sh -c "echo \\$\\$ >{pid}; sleep 300" & {WAIT}', kind
    )
    until(lambda: pid.exists() and pid.read_text().strip())
    folder = nodes.folder / "node000001/.ranklift/jobs" / started.job
    word = pid.read_text().strip().encode()
    until(lambda: any(word in one.read_bytes().split() for one in folder.glob("descent.*")))
    chain = [runner_of(nodes, 1, started.job)]
    words = Path(f"/proc/{chain[0]}/cmdline").read_bytes()
    while Path(f"/proc/{parent(chain[-1])}/cmdline").read_bytes() == words:
        chain.append(parent(chain[-1]))
    for one in reversed(chain):
        os.kill(one, signal.SIGKILL)
    assert started.end().state == "FAILED"
    until(lambda: not start_time(int(pid.read_text())))
    until(lambda: not left_of(started.job))


def test_a_job_that_has_ended_leaves_no_record_of_its_processes(nodes: Nodes) -> None:
    state, _ = nodes.run(shell("sleep 0.5"))
    assert state.state == "SUCCEEDED"
    assert not list(nodes.folder.glob("*/.ranklift/jobs/*/descent.*"))
