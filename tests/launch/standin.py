"""Nodes that are folders on this machine, reached by an ``ssh`` that runs commands locally.

Enough for everything but partitions and separate process tables; the rehearsal's real nodes have those.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import launch.remote
from launch.client import submit
from launch.client.cancel import end_job
from launch.client.events import Event, JobState, LogLine, StateChange
from launch.client.query import list_some
from launch.host import Completed, Host
from launch.job.plan import JobPlan, plan
from launch.job.spec import JobNode, JobSpec, Kind
from launch.remote.base.health_records import ProbeOrder
from launch.remote.mpi.detect import FoundMpi, find_mpi
from launch.remote.mpi.openmpi import OpenMpi
from tests.launch.sealed import manifest_of, snapshot_id

REMOTE = Path(launch.remote.__file__).parent

SSH = """#!/bin/sh
while :; do case $1 in -o) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
if [ -e "$STANDIN/down/$host" ]; then
    echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255
fi
export HOME="$STANDIN/$host" TMPDIR="$STANDIN/$host/tmp"
cd "$HOME" || exit
[ ! -e .profile ] || . ./.profile
exec sh -c "$*"
"""


class LocalHost:
    """The head's commands run here, its home folder being a folder of the test's."""

    def __init__(self, name: str, home: Path, env: dict[str, str]) -> None:
        self.name, self._home, self._env = name, home, env

    def run(
        self, argv: Sequence[str], *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> Completed:
        pieces: list[bytes] = []
        done = self.stream(argv, pieces.append, stdin=stdin, timeout=timeout)
        return Completed(done.exit_status, b"".join(pieces), done.stderr)

    def stream(
        self,
        argv: Sequence[str],
        on_stdout: Callable[[bytes], object],
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        given = stdin if isinstance(stdin, bytes) else stdin.read() if stdin else b""
        with subprocess.Popen(
            argv,
            cwd=self._home,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(given)
            process.stdin.close()
            while data := os.read(process.stdout.fileno(), 65536):
                on_stdout(data)
            return Completed(process.wait(timeout), b"", process.stderr.read())


class Nodes:
    """Stand-in nodes with a pushed snapshot ``code`` on each."""

    def __init__(self, folder: Path, slots: Sequence[int]) -> None:
        self.folder = folder
        self.nodes = tuple(JobNode(f"node{i:06}", "127.0.0.1", count) for i, count in enumerate(slots))
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "ssh").write_text(SSH)
        (self.bin / "ssh").chmod(0o755)
        (folder / "down").mkdir()
        for node in self.nodes:
            home = folder / node.name
            (home / ".ranklift/snapshots/code").mkdir(parents=True)
            (home / ".ranklift/remote").mkdir()
            (home / ".ranklift/remote/hash").symlink_to(REMOTE)
            (home / "tmp").mkdir()
            (home / ".ssh").mkdir()
            (home / ".ssh/id_ed25519").write_text("the cluster's key\n")
        self.env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(folder / self.nodes[0].name),
            "STANDIN": str(folder),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "FI_PROVIDER": "tcp",
        }
        self.head: Host = LocalHost(self.nodes[0].name, folder / self.nodes[0].name, self.env)

    def code(self, name: str, text: str) -> None:
        """Pushes one file to every node."""
        for node in self.nodes:
            (self.folder / node.name / ".ranklift/snapshots/code" / name).write_text(text)

    def seal(self) -> str:
        """Gives every node's ``code`` the manifest of the head's; returns the snapshot's id."""
        manifest = manifest_of(Path(self.env["HOME"]) / ".ranklift/snapshots/code")
        name = snapshot_id(manifest)
        for node in self.nodes:
            snapshots = self.folder / node.name / ".ranklift/snapshots"
            (snapshots / f"{name}.manifest").write_bytes(manifest)
            if not (snapshots / name).is_symlink():
                (snapshots / name).symlink_to("code")
        return name

    def plan(self, spec: JobSpec) -> JobPlan:
        if spec.snapshot == "code":
            spec = replace(spec, snapshot=self.seal())
        made = plan(spec, self.nodes, size="Standard_ND40rs_v2", remote="hash")
        spec = replace(spec, health="off")  # this machine has neither GPUs nor InfiniBand
        probe: ProbeOrder = {"mode": "on" if spec.probe else "off", "rehearsal": 0}
        return replace(made, infiniband=False, spec=spec, probe=probe)

    def run(self, spec: JobSpec) -> tuple[JobState, list[Event]]:
        """Runs a job to its end."""
        events: list[Event] = []
        state = submit.submit_and_follow(self.plan(spec), self.head, events.append)
        return state, events

    def cancel(self, job: str) -> JobState:
        """Ends a job; gives its state then."""
        return end_job(job, self.head, remote="hash").state

    def jobs(self) -> list[JobState]:
        """Every job that the head has, oldest first."""
        return list(list_some(self.head, remote="hash").jobs)

    def down(self, node: int) -> None:
        """From now on the node's ssh answers nothing."""
        (self.folder / "down" / self.nodes[node].name).touch()


def open_mpi() -> FoundMpi:
    """The nodes' Open MPI, which is this machine's."""
    return find_mpi(list(OpenMpi().names))


def left_of(job: str) -> list[str]:
    """Command lines of processes that belong to a job, found by their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"RANKLIFT_JOB_ID={job}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


def lines(events: list[Event]) -> list[tuple[int, str]]:
    """What ranks wrote; mpirun's own remarks left out."""
    return [(e.rank, e.data.decode()) for e in events if isinstance(e, LogLine) and e.rank is not None]


def remarks(events: list[Event]) -> str:
    """What the launcher wrote."""
    return "\n".join(e.data.decode() for e in events if isinstance(e, LogLine) and e.rank is None)


def states(events: list[Event]) -> list[str]:
    return [event.state.state for event in events if isinstance(event, StateChange)]


def shell(script: str, kind: Kind = "pytorch", **options: object) -> JobSpec:
    settings: dict[str, object] = {"processes_per_node": 1, "snapshot": "code", **options}
    return JobSpec(name="t", kind=kind, command=("sh", "-c", script), **settings)  # type: ignore[arg-type]


class Started:
    """A job that runs while the test goes on."""

    def __init__(self, nodes: Nodes, spec: JobSpec) -> None:
        self.events: list[Event] = []
        made = nodes.plan(spec)
        self.job = made.id
        self._state: JobState | None = None

        def run() -> None:
            self._state = submit.submit_and_follow(made, nodes.head, self.events.append)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def end(self) -> JobState:
        self.thread.join(30)
        assert self._state is not None
        return self._state


RUNNING: list[Started] = []


def start(nodes: Nodes, spec: JobSpec) -> Started:
    RUNNING.append(Started(nodes, spec))
    return RUNNING[-1]


def end_everything() -> None:
    """After a test: what it started and did not end."""
    for started in RUNNING:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"RANKLIFT_JOB_ID={started.job}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
        started.thread.join(10)
    RUNNING.clear()
