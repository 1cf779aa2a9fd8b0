"""A head that a test writes: a real sshd with the node code, and a job's records as the test has them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from launch.client.samples import JobSamples
from launch.code.node_code import remote_id
from playbooks.ssh.connection import Cluster
from tests.launch.remote.sample_records import sample_plan
from tests.playbooks.server import SshServer, save_stack
from tests.playbooks.typed import ROOT, write_project

__all__ = ["StandInHead"]


class StandInHead:
    """The head ``node000000`` of stack ``dev`` of a project in ``folder``, and its jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_project(folder, "dev", fabfile=True)
        self._server = SshServer(folder / "sshd")

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"}

    @contextmanager
    def up(self) -> Iterator[StandInHead]:
        with self._server as server:
            stack = self.folder / ".ranklift" / "dev"
            inventory = save_stack(stack, {0: server.port}, server.host_key, server.user_key)
            home = server.folder / "home"
            shutil.copytree(ROOT / "launch/remote", home / ".ranklift/remote" / remote_id())
            (home / ".ranklift/jobs").mkdir()
            self._cluster = Cluster(inventory, stack)
            self._host = self._cluster.host(inventory.nodes[0])
            try:
                yield self
            finally:
                self._cluster.close()

    def _process(self) -> dict[str, Any]:
        """Return what identifies a process that lives as long as the head."""
        files = ["/proc/1/stat", "/proc/sys/kernel/random/boot_id"]
        stat, boot = self._host.run(["cat", *files]).stdout.decode().split("\n")[:2]
        return {"pid": 1, "started": int(stat.rpartition(")")[2].split()[19]), "boot": boot}

    def write(self, samples: JobSamples, *, ahead: float = 0.0) -> None:
        """Make these the job's newest records, as old as they are now, or sampled so many seconds later."""
        state = samples.state
        job = self._server.folder / "home/.ranklift/jobs" / state.job
        job.mkdir(exist_ok=True)
        if not (job / "job.json").exists():
            self._replace(
                job / "job.json", dict(sample_plan(state.job, remote=f"~/.ranklift/remote/{remote_id()}"))
            )
        late = time.time() - samples.now + ahead
        self._replace(job / "state.json", self._state(samples, late))
        for name, record in (("samples.json", samples.live), ("history.json", samples.history)):
            if record is not None:
                self._replace(job / name, shifted(record, late))

    def clear(self) -> None:
        """Remove all jobs."""
        for job in (self._server.folder / "home/.ranklift/jobs").iterdir():
            shutil.rmtree(job)
        for note in (self.folder / ".ranklift/dev/jobs").glob("*.json"):
            note.unlink()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Have everything on the head end, and start its sshd again afterwards."""
        self._server.die()
        try:
            yield
        finally:
            self._server.__enter__()

    def _state(self, samples: JobSamples, late: float) -> dict[str, Any]:
        state = samples.state
        times = {"created": state.created, "started": state.started, "ended": state.ended}
        failure = state.failure
        return {
            **{
                name: getattr(state, name)
                for name in ("job", "name", "kind", "state", "reason", "exit_status")
            },
            **{name: getattr(state, name) for name in ("ranks", "port", "restarts", "place")},
            **{name: None if when is None else when.timestamp() + late for name, when in times.items()},
            "nodes": list(state.nodes),
            "waits_for": list(state.waits_for),
            "failure": failure
            and {
                "rank": failure.rank,
                "node": failure.node,
                "status": failure.status,
                "last_lines": list(failure.last_lines),
            },
            "supervisor": self._process(),
            **{name: getattr(state, name) for name in ("display_name", "experiment", "description")},
            **{"tags": dict(state.tags), "node_price": None},
        }

    @staticmethod
    def _replace(path: Path, record: object) -> None:
        path.with_suffix(".new").write_text(json.dumps(record))
        path.with_suffix(".new").replace(path)

    def watchers(self, job: str) -> list[int]:
        """Return the processes on the head that watch the job's samples."""
        home, words = self._server.folder / "home", ["watch-samples", job]
        return [pid for pid, folder, line in _lines() if folder == home and line[-2:] == words]

    def end_watchers(self, job: str) -> None:
        """Kill the processes that watch the job's samples: one whose reader has gone ends when it next
        writes, and until then would be taken for the next reader's."""
        for pid in self.watchers(job):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def cut(self, job: str) -> None:
        """Kill the sshd of each connection on which the job's samples come."""
        for pid in self.watchers(job):
            with suppress(OSError):
                os.kill(
                    int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL
                )


def shifted(record: Any, late: float) -> Any:
    """Return a record of samples with its times moved by so many seconds."""
    if isinstance(record, dict):
        times = ("time", "silent_since", "start")
        return {key: value + late if key in times else shifted(value, late) for key, value in record.items()}
    return record


def _lines() -> Iterator[tuple[int, Path, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                line = (entry / "cmdline").read_text().rstrip("\0").split("\0")
                yield int(entry.name), (entry / "cwd").readlink(), line
