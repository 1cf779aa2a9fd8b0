"""A stranger at the ports that mpirun and its daemons open themselves cannot keep a job from its end."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from launch.remote.base.processes import RUNNER_OF
from tests.launch.standin import REMOTE, Nodes, remarks, shell, start, until
from tests.launch.whole_jobs.test_restarting import mpirun_of
from tests.launch.whole_jobs.test_strangers import Job, in_place_of_the_runner

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]


def listening(pid: int) -> list[int]:
    """The TCP ports at which a process listens, on whatever address."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            own.update(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in own]


def launched_for(job: str) -> list[str]:
    """What runs for the job's mpirun: itself, its ssh, its daemons."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{RUNNER_OF}={job}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def daemon_of(job: str) -> int:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environ = (entry / "environ").read_bytes().split(b"\0")
            is_daemon = words[0].rpartition(b"/")[2] in (b"orted", b"prted")
            if is_daemon and f"{RUNNER_OF}={job}".encode() in environ and listening(int(entry.name)):
                return int(entry.name)
    raise AssertionError("no daemon")


@pytest.mark.parametrize("whose", ["mpirun", "daemon"])
def test_a_job_ends_with_its_ranks_though_a_stranger_holds_mpirun(nodes: Nodes, whose: str) -> None:
    job = Job(nodes)
    pid = mpirun_of(job.started) if whose == "mpirun" else daemon_of(job.started.job)
    with ExitStack() as open_ones:
        for port in listening(pid):
            with suppress(OSError):
                stranger = socket.create_connection(("127.0.0.1", port), 5)
                open_ones.enter_context(stranger)
                stranger.sendall(bytes(10))
        job.let_go()
        until(lambda: not job.started.thread.is_alive(), 40)
        state = job.started.end()
        assert (state.state, state.exit_status) == ("SUCCEEDED", 0)
        assert "mpirun did not exit within 10 s of the last rank, and was killed" in remarks(
            job.started.events
        )
        until(lambda: launched_for(job.started.job) == [], 20)


def test_nothing_counts_from_a_runner_without_the_clusters_key(nodes: Nodes) -> None:
    """It has the token, and the address of the node that it names."""
    in_place_of_the_runner(
        nodes,
        "node000001",
        f"""
        import socket, time
        sys.path.insert(0, {str(REMOTE.parent.parent)!r})
        from launch.remote.base import frames
        host, _, port = os.environ["RANKLIFT_SUPERVISOR"].rpartition(":")
        hello = {{"rank": 1, "local_rank": 0, "node": os.uname().nodename, "pid": os.getpid(), "proof": ""}}
        channel = socket.create_connection((host, int(port)))
        data = frames.frame(b"H", frames.pack(dict(hello, token=os.environ["RANKLIFT_TOKEN"])))
        channel.sendall(data + frames.frame(frames.OUT, frames.OUTPUT.pack(1, 1) + b"forged" + bytes([10])))
        while channel.recv(65536):
            pass
        sys.exit(0)
        """,
    )
    started = start(nodes, shell("echo up", "mpi", grace_s=1))
    state = started.end()
    assert state.state == "FAILED"
    assert "node000001: has no cluster key" in state.reason
    assert "forged" not in str(started.events)
